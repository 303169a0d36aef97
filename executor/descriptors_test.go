package executor

import "testing"

func TestCommandsAndProxiesLeaveDescriptorsForTheRest(t *testing.T) {
	t.Parallel()
	for files, want := range map[uint64]int{0: 1, 64: 1, 256: 8, 1024: 80, 4096: 368, 65_536: 7152} {
		if n := mostExecs(files); n != want {
			t.Errorf("%d commands with %d descriptors, want %d", n, files, want)
		}
		if files >= 256 && uint64(mostExecs(files))*commandFiles+2*uint64(mostConns(files)) > files-100 {
			t.Errorf("with %d descriptors none are left", files)
		}
	}
}
