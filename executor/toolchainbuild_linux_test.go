//go:build toolchains

package executor

import (
	"strings"
	"testing"
)

// Each of the two rules waits for the other through a FIFO: only a make that runs both at once comes to an end.
func TestMakeRunsRulesAtOnce(t *testing.T) {
	b := newBench(t, "make", "mkfifo")
	b.file("Makefile", `all: left right
	@echo both
left right: fifos
left: ; @echo > to-right; read line < to-left
right: ; @read line < to-right; echo > to-left
fifos: ; @mkfifo to-left to-right
.PHONY: all left right fifos
`)
	b.wants("make --silent -j2", "both")
	b.wants("rm to-*; make --silent -j", "both")
}

// The job server, of which sub-makes are clients, is a pipe or a FIFO in /tmp.
func TestMakeSharesItsJobsWithSubMakesAndCompiles(t *testing.T) {
	b := newBench(t, "make", "gcc")
	b.file("Makefile", `parts := $(foreach n,1 2 3 4 5 6 7 8,part$(n).o)
program: $(parts) main.o
	$(CC) -o $@ $^
part%.c: ; echo "int part$*(void) { return $*; }" > $@
main.c:
	printf '#include <stdio.h>\n' > $@
	for n in 1 2 3 4 5 6 7 8; do echo "int part$$n(void);"; done >> $@
	echo 'int main(void) { return printf("%d", part1()+part2()+part3()+part4()+part5()+part6()+part7()+part8()) < 0; }' >> $@
nested: ; +$(MAKE) -C . program
.PRECIOUS: part%.c
`)
	e := b.try("make -j4 nested && ./program")
	if e.code != 0 || !strings.HasSuffix(e.stdout, "\n36") || strings.Contains(e.stderr, "jobserver unavailable") {
		t.Errorf("make: %+v", e)
	}
}

func TestCargoBuildsTestsAndRunsOffline(t *testing.T) {
	b := newBench(t, "cargo", "rustc", "cc")
	b.file("Cargo.toml", "[package]\nname = \"greeter\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\nwords = { path = \"words\" }\n")
	b.file("words/Cargo.toml", "[package]\nname = \"words\"\nversion = \"0.1.0\"\nedition = \"2021\"\n")
	b.file("words/src/lib.rs", "pub fn hello(who: &str) -> String {\n    format!(\"hello {who}\")\n}\n")
	b.file("src/main.rs", `fn main() {
    let all: Vec<_> = ["a", "b"].map(|n| std::thread::spawn(move || words::hello(n))).into_iter().collect();
    for thread in all {
        println!("{} {}", thread.join().unwrap(), env!("BUILT"));
    }
}

#[test]
fn says_hello() {
    assert_eq!(words::hello("x"), "hello x");
}
`)
	b.file("build.rs", "fn main() {\n    println!(\"cargo:rustc-env=BUILT=by-script\");\n}\n")
	b.wants("cargo build --offline --quiet && target/debug/greeter", "hello a by-script\nhello b by-script")
	if got := b.run("cargo test --offline --quiet"); !strings.Contains(got, "test result: ok. 1 passed") {
		t.Errorf("cargo test printed %q", got)
	}
	b.wants("cargo run --offline --quiet --release", "hello a by-script\nhello b by-script")
}
