// Package pki makes the certificates and keys of a cluster: one authority for
// the API and one for etcd, so that no client of the API is one of etcd.
// The authorities' keys are never written; what they signed is all there is.
package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Files in the directory that [Ensure] fills. Every leaf X is X.crt and X.key.
const (
	CA         = "ca.crt"
	EtcdCA     = "etcd-ca.crt"
	ServiceKey = "service-account.key"
	ServicePub = "service-account.pub"

	Etcd          = "etcd"           // server and peer
	EtcdClient    = "etcd-client"    // the API server's, towards etcd
	APIServer     = "kube-apiserver" // server
	Admin         = "admin"          // client, group system:masters
	Controllers   = "kube-controller-manager"
	Scheduler     = "kube-scheduler"
	NodeSimulator = "kwok" // client, group system:masters
)

// leaf describes one certificate.
type leaf struct {
	file, user, group string
	usage             []x509.ExtKeyUsage
	isServer          bool
}

// Ensure fills dir, unless an earlier run has. The directory appears complete
// or not at all.
func Ensure(dir string) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	draft := dir + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	if err := os.Mkdir(draft, 0o700); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	if err := fill(draft); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	if err := os.Rename(draft, dir); err != nil {
		return fmt.Errorf("making certificates: %w", err)
	}
	return nil
}

func fill(dir string) error {
	server, client := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	forAPI := []leaf{
		{file: APIServer, user: "kube-apiserver", usage: []x509.ExtKeyUsage{server}, isServer: true},
		{file: Admin, user: "local-cluster-admin", group: "system:masters", usage: []x509.ExtKeyUsage{client}},
		{file: Controllers, user: "system:kube-controller-manager", usage: []x509.ExtKeyUsage{client}},
		{file: Scheduler, user: "system:kube-scheduler", usage: []x509.ExtKeyUsage{client}},
		{file: NodeSimulator, user: "system:kwok", group: "system:masters", usage: []x509.ExtKeyUsage{client}},
	}
	forEtcd := []leaf{
		{file: Etcd, user: "etcd", usage: []x509.ExtKeyUsage{server, client}, isServer: true},
		{file: EtcdClient, user: "kube-apiserver", usage: []x509.ExtKeyUsage{client}},
	}
	if err := authorize(dir, CA, "local-cluster", forAPI); err != nil {
		return err
	}
	if err := authorize(dir, EtcdCA, "local-cluster-etcd", forEtcd); err != nil {
		return err
	}
	return writeServiceAccountKey(filepath.Join(dir, ServiceKey), filepath.Join(dir, ServicePub))
}

// authorize makes an authority, writes its certificate, and signs the leaves.
func authorize(dir, file, name string, leaves []leaf) error {
	ca, err := newAuthority(name)
	if err != nil {
		return fmt.Errorf("authority %s: %w", name, err)
	}
	if err := writePEM(filepath.Join(dir, file), "CERTIFICATE", ca.cert.Raw); err != nil {
		return err
	}
	for _, l := range leaves {
		if err := ca.issue(dir, l); err != nil {
			return fmt.Errorf("certificate %s: %w", l.file, err)
		}
	}
	return nil
}
