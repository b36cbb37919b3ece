package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The range lies below the one from which kernels pick the ports of outgoing
// connections, so that a component finds its port free when it is restarted.
const (
	firstPort = 20000
	lastPort  = 31999
	portTries = 1000
)

// freePorts returns n ports of 127.0.0.1 on which nobody listens. Somebody may
// do so before they are used: who uses them must be ready to ask again.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range portTries {
		if len(ports) == n {
			return ports, nil
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		listener, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		// Held until all are found, so that none is found twice.
		defer listener.Close()
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("found no %d free ports from %d to %d in %d tries", n, firstPort, lastPort, portTries)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
