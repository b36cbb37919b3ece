package secretsync

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// addHandlers queues the names of the copies that a change of a source, a copy or a
// namespace may affect. Nothing is decided here.
func (c *Controller) addHandlers() error {
	sources, err := c.sources.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.Secret]{
		AddFunc: func(source *corev1.Secret) {
			c.queueReview(source, c.config.warningAboutSource(source))
			c.queueCopiesOf(source, c.AddUrgent)
		},
		UpdateFunc: func(before, after *corev1.Secret) {
			add := c.AddUrgent
			if c.config.isSame(before, after) {
				add = c.Add
			}
			c.queueReview(after, c.config.warningAboutSource(before), c.config.warningAboutSource(after))
			if c.config.IsSource(before) {
				after = before // the copies of both are the same
			}
			c.queueCopiesOf(after, add)
		},
		DeleteFunc: func(source cache.DeletedObject[*corev1.Secret]) {
			c.Add(source.GetObjectName())
			c.queueCopiesOf(source.OptionalObj, c.AddUrgent)
		},
	})
	if err != nil {
		return err
	}
	copies, err := c.copies.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.Secret]{
		AddFunc:    func(secret *corev1.Secret) { c.AddAfter(cache.MetaObjectToName(secret), batchPeriod) },
		UpdateFunc: func(_, secret *corev1.Secret) { c.AddAfter(cache.MetaObjectToName(secret), batchPeriod) },
		DeleteFunc: func(secret cache.DeletedObject[*corev1.Secret]) { c.AddAfter(secret.GetObjectName(), batchPeriod) },
	})
	if err != nil {
		return err
	}
	namespaces, err := c.namespaces.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.Namespace]{
		AddFunc: func(namespace *corev1.Namespace) {
			c.queueReview(namespace, c.warningAboutNamespace(namespace))
			c.queueCopiesIn(namespace, c.AddUrgent)
			c.queueAllCopies(namespace)
		},
		UpdateFunc: func(before, after *corev1.Namespace) {
			c.queueReview(after, c.warningAboutNamespace(before), c.warningAboutNamespace(after))
			if before.UID != after.UID || before.Annotations[AnnotationConfirm] != after.Annotations[AnnotationConfirm] {
				c.queueAllCopies(after)
			}
			wasTarget := c.config.IsTarget(before)
			if before.UID == after.UID && wasTarget == c.config.IsTarget(after) && maps.Equal(before.Labels, after.Labels) {
				return
			}
			if wasTarget {
				after = before
			}
			c.queueCopiesIn(after, c.AddUrgent)
		},
		DeleteFunc: func(namespace cache.DeletedObject[*corev1.Namespace]) {
			c.Add(namespace.GetObjectName())
			c.queueCopiesIn(namespace.OptionalObj, c.AddUrgent)
		},
	})
	if err != nil {
		return err
	}
	c.WaitFor(sources.HasSyncedChecker(), copies.HasSyncedChecker(), namespaces.HasSyncedChecker())
	return nil
}

// queueReview queues a source or a namespace if its annotations need, or needed, a
// warning.
func (c *Controller) queueReview(obj metav1.Object, warnings ...Problem) {
	if slices.ContainsFunc(warnings, func(warning Problem) bool { return warning != Problem{} }) {
		c.Add(cache.MetaObjectToName(obj))
	}
}

// queueAllCopies queues all copies if namespace is the source namespace: someone may have
// confirmed that they should be deleted.
func (c *Controller) queueAllCopies(namespace *corev1.Namespace) {
	if namespace.Name != c.config.SourceNamespace {
		return
	}
	for copied := range c.copies.All() {
		c.AddUrgent(cache.MetaObjectToName(copied))
	}
}

// queueCopiesOf queues the copies of a Secret in the source namespace, those that exist
// and those that should, or all copies if the Secret is the key of their hashes. Copies
// in former target namespaces were queued when those stopped being targets.
func (c *Controller) queueCopiesOf(source *corev1.Secret, add func(cache.ObjectName)) {
	if source == nil {
		return // deleted without ever having been seen
	}
	for namespace := range c.namespaces.All() {
		switch {
		case !c.config.IsTarget(namespace):
		case source.Name == HashKey:
			c.queueCopiesIn(namespace, add)
		case c.config.IsSource(source):
			add(cache.NewObjectName(namespace.Name, source.Name))
		}
	}
}

// queueCopiesIn queues the copies in a namespace, those that exist and those that should.
// Each name is added once; a second add could race with a worker and cause a redundant
// sync.
func (c *Controller) queueCopiesIn(namespace *corev1.Namespace, add func(cache.ObjectName)) {
	if namespace == nil {
		return
	}
	names := sets.New[cache.ObjectName]()
	for _, copied := range c.copies.By(byNamespace, namespace.Name) {
		names.Insert(cache.MetaObjectToName(copied))
	}
	for source := range c.sources.All() {
		if c.config.IsSource(source) && c.config.IsTarget(namespace) {
			names.Insert(cache.NewObjectName(namespace.Name, source.Name))
		}
	}
	for name := range names {
		add(name)
	}
}

// names yields the names of all copies that exist and of all that should, some of them
// twice, and the names of the sources and namespaces whose annotations need a warning.
func (c *Controller) names(yield func(cache.ObjectName) bool) {
	for copied := range c.copies.All() {
		if !yield(cache.MetaObjectToName(copied)) {
			return
		}
	}
	sources := slices.Collect(c.sources.All())
	for _, source := range sources {
		if c.config.warningAboutSource(source) != (Problem{}) && !yield(cache.MetaObjectToName(source)) {
			return
		}
	}
	for namespace := range c.namespaces.All() {
		if c.warningAboutNamespace(namespace) != (Problem{}) && !yield(cache.MetaObjectToName(namespace)) {
			return
		}
		for _, source := range sources {
			if c.config.IsTarget(namespace) && c.config.IsSource(source) && !yield(cache.NewObjectName(namespace.Name, source.Name)) {
				return
			}
		}
	}
}
