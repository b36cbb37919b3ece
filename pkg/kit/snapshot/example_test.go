package snapshot_test

import (
	"encoding/json"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"nicoleh.io/k8s-controller/pkg/kit/snapshot"
)

// What a program remembers of each object becomes JSON, and is restored from it.
func Example() {
	failures := map[cache.ObjectName]int{cache.NewObjectName("default", "sundae"): 3}
	raw, err := json.Marshal(snapshot.Save(failures, snapshot.Same))
	if err != nil {
		panic(err)
	}
	fmt.Println(string(raw))

	var saved map[string]int
	if err := json.Unmarshal(raw, &saved); err != nil {
		panic(err)
	}
	fmt.Println(snapshot.Restore(saved, snapshot.Same))
	// Output:
	// {"default/sundae":3}
	// map[default/sundae:3]
}

// A set becomes a list in alphabetical order.
func ExampleSaveSet() {
	waiting := map[cache.ObjectName]bool{cache.NewObjectName("default", "sundae"): true, cache.NewObjectName("default", "cone"): true}
	saved := snapshot.SaveSet(waiting)
	fmt.Println(saved)
	fmt.Println(snapshot.RestoreSet(saved))
	// Output:
	// [default/cone default/sundae]
	// map[default/cone:true default/sundae:true]
}
