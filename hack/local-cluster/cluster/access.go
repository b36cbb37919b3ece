package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nicoleh.io/k8s-controller/hack/local-cluster/internal/pki"
)

const (
	probeTimeout  = 2 * time.Second
	tokenLifetime = 24 * time.Hour
)

// ServiceAccountKubeconfig writes a kubeconfig of a service account, with a
// token that the API server has issued and that is good for a day, and returns
// its path. The service account must exist; it has the rights it was given.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	return ServiceAccountKubeconfig(ctx, c.dir.path, namespace, name)
}

// ServiceAccountKubeconfig does the same for the cluster that runs in dir.
func ServiceAccountKubeconfig(ctx context.Context, dir, namespace, name string) (string, error) {
	config, err := adminConfig(dir)
	if err != nil {
		return "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	seconds := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	issued, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of service account %s/%s: %w", namespace, name, err)
	}
	// No name of a namespace holds the separator.
	path := filepath.Join(dir, "config", namespace+"_"+name+".kubeconfig")
	user := &clientcmdapi.AuthInfo{Token: issued.Status.Token}
	return path, writeKubeconfig(path, config.Host, config.CAData, user)
}

// Kubectl returns the paths of kubectl and of the administrator's kubeconfig
// of the cluster that runs in dir.
func Kubectl(dir string) (kubectl, kubeconfig string) {
	return filepath.Join(dir, "bin", "kubectl"), kubeconfigFile(dir)
}

func kubeconfigFile(dir string) string { return filepath.Join(dir, "kubeconfig") }

func adminConfig(dir string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfigFile(dir))
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the cluster in %s: %w", dir, err)
	}
	const unlimited = -1
	config.QPS = unlimited
	return config, nil
}

// writeKubeconfigs writes those of the administrator and of the components,
// and makes the cluster's own client from the former.
func (c *Cluster) writeKubeconfigs() error {
	ca, err := os.ReadFile(c.pki(pki.CA))
	if err != nil {
		return fmt.Errorf("reading the authority: %w", err)
	}
	for path, leaf := range map[string]string{
		c.Kubeconfig():                  pki.Admin,
		c.configFile(ControllerManager): pki.Controllers,
		c.configFile(Scheduler):         pki.Scheduler,
		c.configFile(Kwok):              pki.NodeSimulator,
	} {
		user, err := certificateUser(c.cert(leaf), c.key(leaf))
		if err != nil {
			return err
		}
		if err := writeKubeconfig(path, "https://"+address(c.ports.api), ca, user); err != nil {
			return err
		}
	}
	if c.config, err = adminConfig(c.dir.path); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

// apiServes reports whether the API server calls itself ready.
func (c *Cluster) apiServes(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	return err == nil, err
}

// etcdServes reports whether etcd calls itself healthy, as a client of it.
func (c *Cluster) etcdServes(ctx context.Context) (bool, error) {
	client, err := c.etcdClient()
	if err != nil {
		return false, err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address(c.ports.etcdClient)+"/health", http.NoBody)
	if err != nil {
		return false, err
	}
	response, err := client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("etcd answers %s", response.Status)
	}
	return true, nil
}

func (c *Cluster) etcdClient() (*http.Client, error) {
	ca, err := os.ReadFile(c.pki(pki.EtcdCA))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("etcd's authority has no certificate")
	}
	own, err := tls.LoadX509KeyPair(c.cert(pki.EtcdClient), c.key(pki.EtcdClient))
	if err != nil {
		return nil, err
	}
	settings := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: settings}}, nil
}
