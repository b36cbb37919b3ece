package serve_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nicoleh.io/k8s-controller/pkg/kit/serve"
)

// besieged is the variable that has the test binary be the server of TestASiege: the
// certificate and key files, by a comma.
const besieged = "SERVE_TEST_BESIEGED"

// isBesieged serves in a process of its own until its standard input ends, if the
// environment asks for that.
func isBesieged() bool {
	files, ok := os.LookupEnv(besieged)
	if !ok {
		return false
	}
	c := serve.Config{BindAddress: "127.0.0.1:0", InsecureBindAddress: "127.0.0.1:0"}
	c.CertFile, c.KeyFile, _ = strings.Cut(files, ",")
	server, err := serve.Listen(c, (&cluster{}).client(), nil, nil)
	if err != nil {
		fmt.Println(err)
		return true
	}
	fmt.Println(strings.Join(server.Addresses(), " "))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // however it ends
		cancel()
	}()
	if err := server.Run(ctx); err != nil {
		fmt.Println(err)
	}
	return true
}

// Thousands of slow connections from many addresses, wave after wave, keep neither a probe
// from its answer nor the server from its bounds.
func TestASiege(t *testing.T) {
	if testing.Short() {
		t.Skip("opens thousands of connections")
	}
	const (
		waves    = 5
		wave     = 3000 // connections, opened at once and kept until the server closes them
		mostKept = 32 << 20
	)
	c := loopback(t)
	child := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this very program
	child.Env = append(os.Environ(), besieged+"="+c.CertFile+","+c.KeyFile, "GOGC=100")
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	https, plain, _ := strings.Cut(strings.TrimSpace(line), " ")

	before := memoryOf(t, plain)
	siege, lift := context.WithCancel(t.Context())
	var besiegers sync.WaitGroup
	var opened atomic.Int64
	most := int64(0)
	for range waves {
		for i := range wave {
			besiegers.Go(func() { besiege(siege, https, i, &opened) })
		}
		requireProbe(t, https) // while they come
		for end := time.Now().Add(time.Minute); opened.Load() < wave && time.Now().Before(end); {
			requireProbe(t, https)
		}
		requireProbe(t, https)
		most = max(most, memoryOf(t, plain)-before)
	}
	lift()
	besiegers.Wait()
	t.Logf("%d connections, %d KiB of memory at most", opened.Load(), most>>10)
	if opened.Load() < wave {
		t.Errorf("only %d connections were opened", opened.Load())
	}
	if most > mostKept {
		t.Errorf("the server needs %d MiB more, want %d MiB at most", most>>20, mostKept>>20)
	}
	shut(t, in)
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// besiege opens one connection and keeps it until the server closes it or ctx ends.
// The number says from which address it comes and how far the request gets.
func besiege(ctx context.Context, address string, number int, opened *atomic.Int64) {
	dialer := &net.Dialer{}
	if runtime.GOOS == "linux" { // where all of 127.0.0.0/8 is this machine
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+number%30))}
	}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	opened.Add(1)
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	defer connection.Close()
	if kind := number % 8; kind < 3 {
		secured := tls.Client(connection, &tls.Config{InsecureSkipVerify: true})
		const request = "GET /livez HTTP/1.1\r\nHost: x\r\n"
		beginnings := []string{request, request + "Content-Length: 100000\r\n\r\n", request + "X-Long: " + strings.Repeat("x", 12<<10)}
		if _, err := secured.Write([]byte(beginnings[kind])); err != nil {
			return
		}
	} else if kind < 6 {
		if _, err := connection.Write([]byte{22, 3, 1}); err != nil { // as a handshake begins
			return
		}
	}
	io.Copy(io.Discard, connection) //nolint:errcheck // until it ends, whatever for
}

// requireProbe probes as the kubelet does, on a connection of its own. By default it
// has to fail three times in a row to count: a test machine may have no processor to
// spare for a handshake within five seconds.
func requireProbe(t *testing.T, address string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	for range 3 {
		got, err := send(t.Context(), &http.Client{Transport: transport, Timeout: time.Minute}, http.MethodGet, "https://"+address+"/livez", "")
		if err == nil && got.code == http.StatusOK && got.body == "ok" {
			return
		}
		t.Logf("a probe gets %d %q: %v", got.code, got.body, err)
	}
	t.Fatal("three probes in a row have failed")
}

// memoryOf is how many bytes the process that serves there has in use, by its own
// metrics. It asks until it gets an answer: this process may be too busy to send its
// request in time.
func memoryOf(t *testing.T, address string) int64 {
	t.Helper()
	ask := func() (reply, error) {
		client := &http.Client{Timeout: time.Minute}
		defer client.CloseIdleConnections()
		return send(t.Context(), client, http.MethodGet, "http://"+address+"/metrics", "")
	}
	got, err := ask()
	for end := time.Now().Add(2 * time.Minute); err != nil; got, err = ask() {
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	var sum float64
	for _, name := range []string{"go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes"} {
		found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(got.body)
		if found == nil {
			t.Fatalf("no %s in:\n%s", name, got.body)
		}
		value, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += value
	}
	return int64(sum)
}
