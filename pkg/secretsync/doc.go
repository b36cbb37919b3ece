// Package secretsync copies Secrets from one namespace to others.
//
// It decides which copies there should be: one of each marked Secret in the source
// namespace, in each marked namespace that may have that Secret. It writes these copies,
// and events about their sources and about namespaces. It never writes to kube-system or
// kube-public, and in the source namespace it writes only the key of the content hashes.
// It never changes or deletes a Secret that lacks the label of a copy or belongs to
// another instance. Deletions that hardly anyone can want are held until someone confirms
// them.
//
// No byte of a Secret appears in a log, an event or a metric.
package secretsync
