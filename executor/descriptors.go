package executor

// What is bounded by the descriptors that this process may have open, so that none is missing in the middle of something.

// commandFiles are the descriptors of a running command here: six for its pipes and its sandbox (PERFORMANCE.md, growth of commands), one for the file of its
// log, one for the listener of its proxy.
const commandFiles = 8

// mostExecs bounds the commands that run at once. A fourth of the descriptors is the proxies', and some are for all else: journals,
// results that are read, the relay.
func mostExecs(files uint64) int {
	const others = 128
	free := int64(min(files, 1<<30)) - int64(2*mostConns(files)) - others
	return int(max(1, free/commandFiles))
}

// mostConns bounds the connections of all proxies, which with what they take outside are a fourth of the descriptors.
func mostConns(files uint64) int { return int(min(files/8, 4096)) }
