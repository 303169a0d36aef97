# Thin on purpose: each line is what one would type. .ci/run is the gate; see its head for the stages.

.PHONY: build test lint ci vm faults

build:
	CGO_ENABLED=0 go build -trimpath -o postern ./cmd/postern

test:
	go test ./...

lint:
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

ci:
	.ci/run

# The tests of limits in a machine of its own with cgroup v2.
vm:
	.ci/vm

# Many faults of every kind while a counted stream runs; .ci/run has a short version. The summary is in the log.
faults:
	POSTERN_FAULTS=long go test ./cmd/postern -count=1 -v -timeout 60m -run 'Survives|Killed|Hostile|Detached'
