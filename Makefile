# Thin on purpose: each line is what one would type. .ci/run is the gate; see its head for the stages.

.PHONY: build test lint ci vm faults soak capacity layers

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

# Executors, clients and circuits come and go for an hour, or for as long as SOAK says; then the relay must have given everything back.
soak:
	SOAK=$${SOAK:-1h} go test ./cmd/postern -count=1 -v -timeout 0 -run '^TestSoak$$'

# What relay/CAPACITY.md has the figures of; takes ten minutes, on a machine that does nothing else.
capacity:
	go test ./cmd/postern -count=1 -timeout 1h -run '^$$' -bench '^Benchmark(Capacity|Fairness)$$' -benchtime 1x

# What each layer costs by itself, without a network: codec, records, handshake and channels, splice, log, journal, an exec without its sandbox.
layers:
	go test -run '^$$' -bench '^Benchmark(Codec|Record32KiB|Handshake|Channel|Send|SendRecv|Splice|Append|Settle|Begin|Exec)$$' -benchtime 0.5s ./wire ./wire/noiseconn ./relay ./executor ./executor/execlog ./executor/journal ./executor/recordlog
