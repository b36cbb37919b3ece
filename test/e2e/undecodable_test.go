package e2e

// What the API server (v1.36) allows for an Icecream that was stored under a laxer
// schema and that the present one does not allow:
//
//   - A PUT to /status is accepted for replicas: "two" or 3000000000, for
//     requests.cpu: {}, and for a spec that is text or a list. It may leave the spec
//     out, and needs no more metadata than namespace, name, UID and resource
//     version; what it says about the spec and about annotations is ignored.
//   - Server-side apply to /status is refused ("failed to create typed live
//     object"), whoever applies, as soon as the spec does not fit the schema.
//   - No form of a status write (PUT, merge patch, apply) is accepted where the
//     schema has a CEL rule on the field, or on one above it that reads the field,
//     and the value is of another type: the API server evaluates the rules of the
//     spec on writes of the status, too, and an error of the evaluation ("invalid
//     data, expected string, got int64 evaluating rule"), other than a rule that is
//     false, is not forgiven because nothing has changed. That concerns image: 5 and
//     deploymentName: 7 at present. A pattern, minimum or maxLength in place of the
//     rule does no harm: those are not looked at on writes of the status.
//   - An edit that mends the spec is accepted. One that does not, such as of a label,
//     is mostly refused.
