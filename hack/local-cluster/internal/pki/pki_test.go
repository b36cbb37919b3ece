package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

func TestEveryLeafIsGoodForItsPurposeOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if err := Ensure(dir); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		leaf, authority string
		user, group     string
		isServer        bool
		isClient        bool
	}{
		{leaf: APIServer, authority: CA, user: "kube-apiserver", isServer: true},
		{leaf: Admin, authority: CA, user: "local-cluster-admin", group: "system:masters", isClient: true},
		{leaf: Controllers, authority: CA, user: "system:kube-controller-manager", isClient: true},
		{leaf: Scheduler, authority: CA, user: "system:kube-scheduler", isClient: true},
		{leaf: NodeSimulator, authority: CA, user: "system:kwok", group: "system:masters", isClient: true},
		{leaf: Etcd, authority: EtcdCA, user: "etcd", isServer: true, isClient: true},
		{leaf: EtcdClient, authority: EtcdCA, user: "kube-apiserver", isClient: true},
	} {
		t.Run(test.leaf, func(t *testing.T) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, test.leaf+".crt"), filepath.Join(dir, test.leaf+".key"))
			if err != nil {
				t.Fatal(err)
			}
			cert := pair.Leaf
			if cert.Subject.CommonName != test.user || len(cert.Subject.Organization) > 0 != (test.group != "") ||
				test.group != "" && cert.Subject.Organization[0] != test.group {
				t.Errorf("subject %v, want user %q in group %q", cert.Subject, test.user, test.group)
			}
			for _, authority := range []string{CA, EtcdCA} {
				isOwn := authority == test.authority
				for _, host := range []string{"127.0.0.1", "localhost"} {
					if got, want := verifies(t, dir, cert, authority, host, x509.ExtKeyUsageServerAuth), isOwn && test.isServer; got != want {
						t.Errorf("server %s by %s: %v, want %v", host, authority, got, want)
					}
				}
				if got, want := verifies(t, dir, cert, authority, "", x509.ExtKeyUsageClientAuth), isOwn && test.isClient; got != want {
					t.Errorf("client by %s: %v, want %v", authority, got, want)
				}
			}
		})
	}
}

func TestEnsureKeepsWhatIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if err := Ensure(dir); err != nil {
		t.Fatal(err)
	}
	before := read(t, filepath.Join(dir, CA))
	if err := Ensure(dir); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, read(t, filepath.Join(dir, CA))) {
		t.Error("the authority has changed")
	}
}

func verifies(t *testing.T, dir string, cert *x509.Certificate, authority, host string, usage x509.ExtKeyUsage) bool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(read(t, filepath.Join(dir, authority))) {
		t.Fatal("the authority is no certificate")
	}
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err == nil
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
