package apiserver

import (
	"encoding/json"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *call) patch() (Response, error) {
	patched := c.mergePatch
	switch of := patchType(c.Request); {
	case of == types.ApplyYAMLPatchType && c.kind.fields != nil:
		return c.apply()
	case of == types.MergePatchType:
	case of == types.JSONPatchType:
		patched = c.jsonPatch
	case of == types.StrategicMergePatchType && !c.kind.isCustom:
		patched = c.strategicPatch
	default:
		return Response{}, notCovered("patches of the type " + string(of))
	}
	if !json.Valid(c.Body) { // Since Kubernetes 1.37, this is checked before there is an object.
		return Response{}, apierrors.NewBadRequest("invalid JSON patch")
	}
	return c.save("", func(old Object) (Object, error) {
		obj, err := patched()
		if err != nil {
			return nil, err
		}
		c.track(obj, old)
		return obj, c.checkPlace(obj)
	})
}

func (c *call) mergePatch() (Object, error) {
	var patch map[string]any
	if err := json.Unmarshal(c.Body, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return c.decodePatched(func(stored []byte) ([]byte, error) { return jsonpatch.MergePatch(stored, c.Body) })
}

func (c *call) jsonPatch() (Object, error) {
	patch, err := jsonpatch.DecodePatch(c.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return c.decodePatched(patch.Apply)
}

// decodePatched returns the object that a patch makes of the stored one.
func (c *call) decodePatched(patch func(stored []byte) ([]byte, error)) (Object, error) {
	stored, err := json.Marshal(c.store.Objects[c.key])
	if err != nil {
		return nil, err
	}
	patched, err := patch(stored)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	obj, err := c.kind.decode(patched)
	return obj, badPatch(err)
}

func (c *call) strategicPatch() (Object, error) {
	patch := map[string]any{}
	if err := utiljson.Unmarshal(c.Body, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	stored, obj := c.store.Objects[c.key].DeepCopy().Object, c.kind.empty()
	patched, err := strategicpatch.StrategicMergeMapPatch(stored, patch, obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(patched, obj); err != nil {
		return nil, badPatch(err)
	}
	return obj, c.kind.normalize(obj)
}

// badPatch returns the error for a patch that does not result in an object.
func badPatch(err error) error {
	if err == nil {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), nil, err.Error())})
}
