package flags_test

import (
	"flag"
	"fmt"
	"os"

	"nicoleh.io/k8s-controller/pkg/kit/flags"
)

// The command line comes before the environment, and that before the default.
func Example() {
	set := flag.NewFlagSet("Cones", flag.ContinueOnError)
	flavor := set.String("flavor", "vanilla", "What to fill cones with.")
	scoops := set.Int("max-scoops", 1, "How many scoops a cone may have.")
	topping := set.String("topping", "none", "What to put on top.")

	if err := os.Setenv("SHOP_MAX_SCOOPS", "3"); err != nil {
		fmt.Println(err)
	}
	defer os.Unsetenv("SHOP_MAX_SCOOPS") //nolint:errcheck // it was set
	if err := flags.Parse("shop", []string{"-flavor=mint"}, set); err != nil {
		fmt.Println(err)
	}
	fmt.Println(*flavor, *scoops, *topping)

	fmt.Println(flags.Parse("shop", []string{"-max-scoops=many"}, set))
	// Output:
	// mint 3 none
	// invalid value "many" for flag -max-scoops: parse error
}
