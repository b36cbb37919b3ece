package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *call) patch() (Response, error) {
	patch, err := c.patcher()
	if err != nil {
		return Response{}, err
	}
	return c.save("", false, func() (object, error) {
		obj, err := patch()
		if err != nil {
			return nil, err
		}
		if err := c.placeInNamespace(obj); err != nil {
			return nil, err
		}
		return obj, c.checkName(obj)
	})
}

// patcher returns a function that applies the patch to the stored object, by the type of the
// patch.
func (c *call) patcher() (func() (object, error), error) {
	patchers := map[types.PatchType]func() (object, error){
		types.JSONPatchType:           c.jsonPatch,
		types.MergePatchType:          c.mergePatch,
		types.StrategicMergePatchType: c.strategicPatch,
	}
	accepted := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType}
	if c.kind.isCustom {
		delete(patchers, types.StrategicMergePatchType)
		accepted = []types.PatchType{types.JSONPatchType, types.MergePatchType, types.ApplyYAMLPatchType}
	}
	if patchType(c.Request) == types.ApplyYAMLPatchType {
		return nil, notCovered("server-side apply")
	}
	patch := patchers[patchType(c.Request)]
	if patch == nil {
		return nil, unsupportedMediaType(accepted)
	}
	options := &metav1.PatchOptions{FieldManager: c.Query.Get("fieldManager"), FieldValidation: c.Query.Get("fieldValidation")}
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

func (c *call) jsonPatch() (object, error) {
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

func (c *call) mergePatch() (object, error) {
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

func (c *call) strategicPatch() (object, error) {
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
