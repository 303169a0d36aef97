//go:build toolchains

package executor

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes the workspace, or a folder in it, a git repository with everything in one commit, as its owner and outside
// the sandbox.
func (b *bench) repository(folder string) {
	b.t.Helper()
	gitOutside(b.t, filepath.Join(b.workspace, folder), "init", "--quiet", "--initial-branch=main")
	gitOutside(b.t, filepath.Join(b.workspace, folder), "add", "--all")
	gitOutside(b.t, filepath.Join(b.workspace, folder), "commit", "--quiet", "--message=first")
}

// gitOutside runs git as the owner of the workspace, with no settings but these.
func gitOutside(t *testing.T, folder string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = folder
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.test")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

func TestGitReadsAProtectedRepositoryAndChangesNothingInIt(t *testing.T) {
	b := newBench(t, "git")
	b.file("a.txt", "one\n")
	b.repository(".")
	b.wants("git status --short --branch; git log --format=%s", "## main\nfirst")
	b.run("echo two >> a.txt; echo new > b.txt")
	b.wants("git status --porcelain", " M a.txt\n?? b.txt")
	b.wants("git diff --shortstat; git diff | tail -n 1", " 1 file changed, 1 insertion(+)\n+two")
	b.wants("git blame --line-porcelain a.txt | grep -c '^author '; git grep -c two; git show --format=%s --name-only HEAD", "2\na.txt:1\nfirst\n\na.txt")
	before := gitOutside(t, b.workspace, "rev-parse", "HEAD")
	for _, change := range []string{"git add a.txt", "git commit -qam x", "git checkout -b other", "git config user.name x", "echo x > .git/hooks/pre-commit"} {
		if e := b.try(change); e.code == 0 || !strings.Contains(e.stderr, "Read-only file system") {
			t.Errorf("%s: %d %q", change, e.code, e.stderr)
		}
	}
	if after := gitOutside(t, b.workspace, "rev-parse", "HEAD"); after != before {
		t.Errorf("HEAD went from %s to %s", before, after)
	}
}

func TestGitClonesALocalRepositoryAndCommitsInTheClone(t *testing.T) {
	b := newBench(t, "git")
	b.file("a.txt", "one\n")
	b.repository(".")
	b.env = []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.test"}
	for _, how := range []string{"git clone --quiet .", "git clone --quiet file://$PWD", "git clone --quiet --no-hardlinks .", "git clone --quiet --depth 1 file://$PWD"} {
		for _, where := range []string{"$PWD/clone", "/tmp/clone", "$HOME/clone"} {
			b.wants("rm -rf clone; "+how+" "+where+" && cd "+where+" && echo two >> a.txt && git commit -qam second && git status --porcelain && git log --format=%s -1 && git fsck --full --strict --no-progress", "second")
		}
	}
	// What the command made belongs, outside, to the owner of the workspace.
	b.run("rm -rf clone; git clone --quiet . clone; cd clone; echo two >> a.txt; git commit -qam second")
	if got := gitOutside(t, filepath.Join(b.workspace, "clone"), "log", "--format=%s"); got != "second\nfirst" {
		t.Errorf("the clone's log is %q", got)
	}
}

func TestGitMakesWorktreesAndServesClonesInside(t *testing.T) {
	b := newBench(t, "git")
	b.file("project/a.txt", "one\n")
	b.repository("project") // not protected: only a workspace's own names are
	b.env = []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.test"}
	b.wants(`cd project
git worktree add -q ../tree -b topic
cd ../tree
echo two >> a.txt
git commit -qam topic
cd ../project
git merge -q topic
git stash list
git log --format=%s
git worktree list | wc -l`, "topic\nfirst\n2")
	if got := gitOutside(t, filepath.Join(b.workspace, "project"), "log", "--format=%s"); got != "topic\nfirst" {
		t.Errorf("outside the log is %q", got)
	}
}
