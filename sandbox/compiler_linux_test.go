package sandbox

import "testing"

// TestCompilerWorksInside is about a program that wants /tmp, exec there and /dev/null.
func TestCompilerWorksInside(t *testing.T) {
	l := newLauncher(t, Options{})
	out := runShell(t, l, Policy{Mode: ReadOnly}, `command -v cc > /dev/null || { echo none; exit; }
cd /tmp && printf '#include <stdio.h>\nint main(void){return puts("built")<0;}\n' > m.c && cc -pipe -o m m.c && ./m`)
	switch {
	case out.stdout == "none\n":
		t.Skip("needs a C compiler")
	case out.stdout != "built\n":
		t.Errorf("cc: %q %q", out.stdout, out.stderr)
	}
}
