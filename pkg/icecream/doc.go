// Package icecream decides what should exist for an Icecream and what to report about it. It is pure: no
// client, no clock, no log. Read its files in this order:
//
//   - decide.go: what should be written.
//   - deployment.go: the Deployment that an Icecream asks for.
//   - template.go: what spec.template adds to it.
//   - quantity.go: the quantities that are too large to compute with.
//   - status.go: what to report, as a status and as events.
//   - pods.go: which Pods count, where they run, and what is wrong with them. Package podproblem says why a Pod is
//     not ready.
//   - cache.go: what the caches keep of each object.
//
// A Deployment has three states: live, as the cache shows it, even if something else owns it; want, as the Icecream
// asks for it; and stored, as the API server returned it after a write. A write is refused if the API server rejects
// it, and altered if an admission policy or webhook changes it.
package icecream
