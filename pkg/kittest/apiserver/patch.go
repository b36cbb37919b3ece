package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

func (c *call) patch() (Response, error) {
	patch, err := c.patcher()
	if err != nil {
		return Response{}, err
	}
	return c.save("", c.verb == "apply" && c.subresource == "", func(old object) (object, error) {
		if old.GetUID() == "" && c.verb != "apply" {
			return nil, c.notFound()
		}
		obj, err := patch(old)
		if err != nil {
			return nil, err
		}
		if old.GetUID() == "" && obj.GetUID() != "" {
			return nil, c.conflict(fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
		}
		if err := c.placeInNamespace(obj); err != nil {
			return nil, err
		}
		return obj, c.checkName(obj)
	})
}

// patcher returns a function that applies the patch to an object, by the type of the patch.
func (c *call) patcher() (func(old object) (object, error), error) {
	patchers := map[types.PatchType]func(object) (object, error){
		types.JSONPatchType:           c.managed(c.jsonPatch),
		types.MergePatchType:          c.managed(c.mergePatch),
		types.StrategicMergePatchType: c.managed(c.strategicPatch),
		types.ApplyYAMLPatchType:      c.applyPatch,
	}
	accepted := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType}
	if c.kind.isCustom {
		delete(patchers, types.StrategicMergePatchType)
		accepted = []types.PatchType{types.JSONPatchType, types.MergePatchType, types.ApplyYAMLPatchType}
	}
	patch := patchers[patchType(c.Request)]
	if patch == nil {
		return nil, unsupportedMediaType(accepted)
	}
	options := &metav1.PatchOptions{FieldManager: c.Query.Get("fieldManager"), FieldValidation: c.Query.Get("fieldValidation")}
	if c.Query.Has("force") {
		force, err := strconv.ParseBool(c.Query.Get("force"))
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		options.Force = &force
	}
	c.manager = c.managerOr(options.FieldManager)
	return patch, invalidOptions("PatchOptions", metav1validation.ValidatePatchOptions(options, patchType(c.Request)))
}

func unsupportedMediaType(accepted []types.PatchType) error {
	names := make([]string, len(accepted))
	for i, patchType := range accepted {
		names[i] = string(patchType)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(names, ", "),
	}}
}

// managed adds to a patch the update of managedFields.
func (c *call) managed(patch func(object) (object, error)) func(object) (object, error) {
	return func(old object) (object, error) {
		obj, err := patch(old)
		if err != nil {
			return nil, err
		}
		return c.manage(old, obj), nil
	}
}

func (c *call) jsonPatch(object) (object, error) {
	var checked []any
	if err := json.Unmarshal(c.Body, &checked); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	patch, err := jsonpatch.DecodePatch(c.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	stored, err := json.Marshal(c.store.Objects[c.key])
	if err != nil {
		return nil, err
	}
	patched, err := patch.Apply(stored)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return c.patched(patched)
}

func (c *call) mergePatch(object) (object, error) {
	var checked map[string]any
	if err := json.Unmarshal(c.Body, &checked); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	stored, err := json.Marshal(c.store.Objects[c.key])
	if err != nil {
		return nil, err
	}
	patched, err := jsonpatch.MergePatch(stored, c.Body)
	if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err != nil {
		return nil, err
	}
	return c.patched(patched)
}

// patched returns the object that a patch has resulted in.
func (c *call) patched(content []byte) (object, error) {
	obj, err := c.kind.decode(content)
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(content), err.Error())})
	}
	return obj, nil
}

func (c *call) strategicPatch(object) (object, error) {
	patch := map[string]any{}
	if err := utiljson.Unmarshal(c.Body, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	stored := c.store.Objects[c.key].DeepCopy().Object
	patched, err := strategicpatch.StrategicMergeMapPatch(stored, patch, c.kind.empty())
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList), errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys),
		errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList), errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, apierrors.NewBadRequest(err.Error())
	case err != nil:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	obj := c.kind.empty()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(patched, obj); err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), fmt.Sprintf("%+v", patch), err.Error())})
	}
	return obj, c.kind.normalize(obj)
}

func (c *call) applyPatch(old object) (object, error) {
	config := &unstructured.Unstructured{Object: map[string]any{}}
	if err := utilyaml.Unmarshal(c.Body, &config.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	return c.apply(old, config, c.Query.Get("force") == "true")
}
