package ledger_test

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/ledger"
)

// A quota refuses a write. The same write has to wait, and an edit does not.
func Example() {
	now := time.Now()
	account := ledger.New().Of(cache.NewObjectName("shop", "web"), "uid-of-web")
	large := []ledger.Ask{{Part: "shape", Goal: "memory: 8Gi", Left: "memory: 1Gi"}}
	account.Note(now, large[0], ledger.Outcome{Refusal: errors.New("exceeded quota")})

	again := account.Standing(now, large)
	fmt.Println("due:", len(again.Due), "because:", again.Refusal)
	edited := account.Standing(now, []ledger.Ask{{Part: "shape", Goal: "memory: 2Gi", Left: "memory: 1Gi"}})
	fmt.Println("due:", len(edited.Due))
	// Output:
	// due: 0 because: exceeded quota
	// due: 1
}
