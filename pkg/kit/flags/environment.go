package flags

import "strings"

// EnvironmentVariable returns the name of the variable that a flag of a program is read
// from: CONTROLLER_KUBE_API_QPS for the flag kube-api-qps of controller.
func EnvironmentVariable(program, flag string) string {
	return strings.ToUpper(strings.ReplaceAll(program+"_"+flag, "-", "_"))
}
