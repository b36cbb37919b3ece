package apiserver

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The library that updates managedFields reads the clock, and sorts by time. So the times that
// are stored are moved far into the past before it is called, and moved back afterwards;
// any other time is that of the request.
const (
	farAway     = -250 * 365 * 24 * time.Hour
	latestMoved = 1990 // the year after which no moved time is
)

// manage returns obj with the managedFields that result from the change from old to obj.
func (c *call) manage(old, obj object) object {
	if c.options.NoManagedFields {
		return obj
	}
	live := old.DeepCopyObject().(object)
	changed := obj.DeepCopyObject().(object)
	moveTimes(live)
	moveTimes(changed)
	managed := c.kind.managers[c.subresource].UpdateNoErrors(live, changed, c.manager).(object)
	c.restoreTimes(managed)
	return managed
}

// apply returns the result of a server-side apply to old.
func (c *call) apply(old, config object, force bool) (object, error) {
	live := old.DeepCopyObject().(object)
	moveTimes(live)
	applied, err := c.kind.managers[c.subresource].Apply(live, config, c.manager, force)
	if err != nil {
		return nil, inOrder(err)
	}
	obj := applied.(object)
	c.restoreTimes(obj)
	return obj, nil
}

// inOrder returns the error of an apply with its parts sorted: those of the library have a
// random order.
func inOrder(err error) error {
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		if status.ErrStatus.Details != nil {
			slices.SortFunc(status.ErrStatus.Details.Causes, func(a, b metav1.StatusCause) int {
				return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
			})
		}
		return err
	}
	first, rest, hasRest := strings.Cut(err.Error(), "\n")
	if !hasRest {
		return err
	}
	lines := strings.Split(rest, "\n")
	slices.Sort(lines)
	return errors.New(first + "\n" + strings.Join(lines, "\n"))
}

func moveTimes(obj object) {
	entries := slices.Clone(obj.GetManagedFields())
	for i, entry := range entries {
		if entry.Time != nil {
			entries[i].Time = &metav1.Time{Time: entry.Time.Add(farAway)}
		}
	}
	if len(entries) > 0 {
		obj.SetManagedFields(entries)
	}
}

func (c *call) restoreTimes(obj object) {
	entries := slices.Clone(obj.GetManagedFields())
	for i, entry := range entries {
		switch {
		case entry.Time == nil:
		case entry.Time.Year() <= latestMoved:
			entries[i].Time = &metav1.Time{Time: entry.Time.Add(-farAway)}
		default:
			entries[i].Time = c.now.DeepCopy()
		}
	}
	slices.SortFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
		return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(secondsOf(a.Time), secondsOf(b.Time)),
			cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Subresource, b.Subresource))
	})
	obj.SetManagedFields(entries)
}

func secondsOf(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}
