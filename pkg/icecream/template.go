// spec.template, merged over the controller's own template of Pods.

package icecream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"
)

const (
	maxTemplate = 64 << 10 // bytes of spec.template
	maxUnknown  = 10       // unknown fields named by an error
)

// addTemplate merges part over our template: maps key by key, and the container icecream over our container. Other
// containers are added. Any other list replaces ours. Nulls, empty lists and empty maps change nothing. After an error,
// pods is undefined.
func addTemplate(pods *corev1ac.PodTemplateSpecApplyConfiguration, part *runtime.RawExtension) error {
	if part == nil {
		return nil
	}
	if len(part.Raw) > maxTemplate {
		return fmt.Errorf("must not have more than %d bytes", maxTemplate)
	}
	var plain any
	decoder := json.NewDecoder(bytes.NewReader(part.Raw))
	decoder.UseNumber()
	if err := decoder.Decode(&plain); err != nil {
		return err
	}
	over := corev1ac.PodTemplateSpec()
	if path, found := overlong(reflect.TypeOf(over), plain); found {
		return fmt.Errorf("%s is too large or too small a number", strings.TrimPrefix(path, "."))
	}
	unknown, err := kjson.UnmarshalStrict(part.Raw, over)
	if err := errors.Join(append(unknown[:min(len(unknown), maxUnknown)], err)...); err != nil {
		return err
	}
	over.Spec = cmp.Or(over.Spec, corev1ac.PodSpec())
	meta := ptr.Deref(over.ObjectMetaApplyConfiguration, metav1ac.ObjectMetaApplyConfiguration{})
	if meta.Labels, meta.Annotations = nil, nil; !equality.Semantic.DeepEqual(meta, metav1ac.ObjectMetaApplyConfiguration{}) {
		return errors.New("metadata can have labels and annotations only")
	}
	containers := pods.Spec.Containers // ours
	isMerged := false
	for i, c := range over.Spec.Containers {
		path := fmt.Sprintf("spec.containers[%d]", i)
		switch {
		case ptr.Deref(c.Name, "") != containerName:
			containers = append(containers, c)
		case isMerged:
			return fmt.Errorf("%s.name: duplicate %q", path, containerName)
		case c.Image != nil || c.Resources != nil:
			return fmt.Errorf("%s: set the image and the resources of container %s in spec.image and spec.resources", path, containerName)
		default:
			isMerged = true
			if err := overlay(&containers[0], &c); err != nil {
				return err
			}
		}
	}
	pods.Spec.Containers, over.Spec.Containers = nil, nil
	err = overlay(pods, over)
	pods.Spec.Containers = containers
	return err
}

// overlay sets the fields of base that are set in over.
func overlay[T any](base, over *T) error {
	set, err := json.Marshal(over)
	if err != nil {
		return err
	}
	return json.Unmarshal(set, base) // leaves other fields as they are
}

// setDependent defaults fields from other fields, as the API server does when it creates an object. The API server does
// not change them when the others change later: see kubernetes/kubernetes#72519 and #108208.
func setDependent(pods *corev1ac.PodSpecApplyConfiguration) {
	pods.ServiceAccountName = cmp.Or(pods.ServiceAccountName, pods.DeprecatedServiceAccount)
	pods.DeprecatedServiceAccount = pods.ServiceAccountName
	for _, containers := range [][]corev1ac.ContainerApplyConfiguration{pods.InitContainers, pods.Containers} {
		for i, c := range containers {
			if c.ImagePullPolicy == nil {
				containers[i].WithImagePullPolicy(pullPolicy(ptr.Deref(c.Image, "")))
			}
		}
	}
}

// pullPolicy returns the API server's default: Always for an image with the tag latest, or with neither tag nor digest;
// otherwise IfNotPresent.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, isPinned := strings.Cut(image, "@")
	_, tag, isTagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "latest" || !isTagged && !isPinned {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
