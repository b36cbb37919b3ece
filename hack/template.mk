# What forks of this repository do not have: see docs/fork.md.

template_tests = test-fork

##@ The template of forks

# For all of it, as before a release: FORKFLAGS='-names=1000 -built=50 -tested=20 -updated -suite=test-all'
# The seed is the tree's, so that each version is tested with other names, and always with the same.
FORKFLAGS ?= -seed=$(shell printf %d 0x$$(git rev-parse 'HEAD^{tree}' | cut -c 1-8)) -names=20 -built=1 -tested=1 -updated -suite=demo

.PHONY: test-fork
test-fork: local-cluster ## Make forks by hostile names, update one, and run one
	$(call go_test,.) -count=1 -timeout 10h ./hack/fork $(FORKFLAGS)
