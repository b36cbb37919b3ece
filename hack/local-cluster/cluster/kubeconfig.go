package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// ServiceAccountKubeconfig writes a kubeconfig of a service account, with a token that is
// valid for a day, and returns its path.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	return ServiceAccountKubeconfig(ctx, c.dir, namespace, name)
}

// ServiceAccountKubeconfig does the same for the cluster that runs in dir.
func ServiceAccountKubeconfig(ctx context.Context, dir, namespace, name string) (string, error) {
	config, err := adminConfig(dir)
	if err != nil {
		return "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	const day = 24 * 60 * 60
	issued, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](day)}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of service account %s/%s: %w", namespace, name, err)
	}
	kubeconfig, err := clientcmd.LoadFromFile(kubeconfigIn(dir))
	if err != nil {
		return "", err
	}
	user := kubeconfig.Contexts[kubeconfig.CurrentContext].AuthInfo
	kubeconfig.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: issued.Status.Token}
	path := filepath.Join(dir, "config", namespace+"_"+name+".kubeconfig")
	return path, clientcmd.WriteToFile(*kubeconfig, path)
}

func kubeconfigIn(dir string) string { return filepath.Join(dir, "kubeconfig") }

func adminConfig(dir string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfigIn(dir))
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the cluster in %s: %w", dir, err)
	}
	config.QPS = -1 // no limit
	return config, nil
}
