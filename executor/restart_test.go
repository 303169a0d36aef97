package executor_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// reopen closes a backend in good order and opens its folder again.
func reopen(t *testing.T, b *executor.Local, cfg executor.LocalConfig) *executor.Local {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if cfg.Runner == nil {
		cfg.Runner = new(executortest.Runner)
	}
	b, err := executor.NewLocal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestExecutorThatStopsEndsItsCommandsAndKeepsAllThatWasNotTaken(t *testing.T) {
	cfg := executor.LocalConfig{State: t.TempDir()}
	inBubble(t, cfg, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		p := command("flood", "100000000") // waits at its window
		h := begin(t, b, p)
		synctest.Wait()
		first, err := h.Read(t.Context(), wire.ReadRequest{MaxBytes: 1_000_000})
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for _, c := range first.Chunks {
			got = append(got, c.Data...)
		}
		epoch := b.Epoch()
		b = reopen(t, b, cfg)
		if b.Epoch() != epoch {
			t.Error("the state epoch has changed")
		}
		back, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{Control: true})
		if err != nil {
			t.Fatal(err)
		}
		for after := first.Next; ; {
			r, err := back.Read(t.Context(), wire.ReadRequest{After: after})
			if err != nil || r.Gap != nil {
				t.Fatalf("Read: %v, gap %+v", err, r.Gap)
			}
			for _, c := range r.Chunks {
				got = append(got, c.Data...)
			}
			if after = r.Next; r.Exit != nil {
				if r.Exit.Cause != wire.CauseTerminated || r.Exit.Signal != "TERM" {
					t.Errorf("ended %+v, want terminated", *r.Exit)
				}
				break
			}
		}
		if len(got) < wire.OutputWindow/2 {
			t.Errorf("only %d bytes were kept", len(got))
		}
		wantPattern(t, got, len(got))
	})
}

func TestResultsAreFetchedAfterARestartUntilTheyAreTooOld(t *testing.T) {
	cfg := executor.LocalConfig{State: t.TempDir(), Keep: time.Hour}
	inBubble(t, cfg, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		p, failed := command("exit", "7"), command("no-such")
		begin(t, b, p).Close()
		_, err := b.Start(t.Context(), failed)
		wantCode(t, "start of nothing", err, wire.CodeNotFoundCmd)
		for range 3 {
			synctest.Wait()
			b = reopen(t, b, cfg)
			if exit := await(t, begin(t, b, p)).exit; exit.Code != 7 || exit.Cause != wire.CauseExited {
				t.Errorf("ended %+v, want code 7", exit)
			}
			_, err = b.Start(t.Context(), failed)
			wantCode(t, "repeated start of nothing", err, wire.CodeNotFoundCmd)
		}
		for _, h := range []time.Duration{time.Hour, 3 * 24 * time.Hour, 3 * 24 * time.Hour} {
			<-time.After(h + time.Minute)
			b = reopen(t, b, cfg)
			_, err = b.Start(t.Context(), p)
			wantCode(t, "start when the result is too old", err, wire.CodeUnknown)
		}
		<-time.After(2 * 24 * time.Hour)
		if err := b.Remove(t.Context(), wire.ExecRef{ID: wire.NewExecID()}); wire.CodeOf(err) != wire.CodeNotFound {
			t.Error(err)
		}
		_, err = b.Attach(t.Context(), p.ID, wire.AttachOptions{})
		wantCode(t, "attach when the id is forgotten", err, wire.CodeNotFound)
	})
}

func TestFullStoreRefusesDetachedStartsAndRemoveMakesRoom(t *testing.T) {
	cfg := executor.LocalConfig{State: t.TempDir(), LogBytes: 1 << 20, StoreBytes: 4 << 20}
	inBubble(t, cfg, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		var started []wire.ExecID
		var refusal error
		for range 20 {
			p := command("flood", "3000000")
			p.Detach = true
			h, err := b.Start(t.Context(), p)
			if refusal = err; err != nil {
				break
			}
			h.Close()
			started = append(started, p.ID)
			synctest.Wait()
		}
		wantCode(t, "one detached start too many", refusal, wire.CodeBusy)
		if refusal != nil && !strings.Contains(refusal.Error(), "postern rm") {
			t.Errorf("it does not say what to do: %v", refusal)
		}
		if n := b.StoreUsed(); n > 4<<20 || len(started) < 3 {
			t.Errorf("%d bytes of 4 MiB are used after %d starts", n, len(started))
		}
		await(t, begin(t, b, command("echo", "attached"))) // needs no room
		for _, id := range started {
			if err := b.Remove(t.Context(), wire.ExecRef{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		p := command("flood", "3000000")
		p.Detach = true
		begin(t, b, p).Close()
	})
}

func TestOutputThatWasTakenToTheEndMakesRoomByItself(t *testing.T) {
	cfg := executor.LocalConfig{State: t.TempDir(), LogBytes: 1 << 20, StoreBytes: 4 << 20}
	inBubble(t, cfg, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		for range 20 {
			p := command("flood", "800000")
			p.Detach = true
			h := begin(t, b, p)
			if _, err := h.Wait(t.Context()); err != nil { // which acknowledges everything
				t.Fatal(err)
			}
			h.Close()
			synctest.Wait()
		}
	})
}

func TestIDsBeyondTheLimitAreRefusedAndNoneIsForgottenEarly(t *testing.T) {
	inBubble(t, executor.LocalConfig{MaxRemembered: 3, Keep: time.Minute}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		var all []wire.ExecParams
		for range 3 {
			p := command("true")
			await(t, begin(t, b, p))
			all = append(all, p)
		}
		_, err := b.Start(t.Context(), command("true"))
		wantCode(t, "one id too many", err, wire.CodeBusy)
		<-time.After(6 * 24 * time.Hour)
		for _, p := range all {
			if _, err := b.Start(t.Context(), p); err == nil {
				continue // its controller is still there
			}
		}
		if r.Starts() != 3 {
			t.Errorf("%d starts, want 3", r.Starts())
		}
	})
}

func TestDamagedStateIsRefusedBeforeAnythingRuns(t *testing.T) {
	state := t.TempDir()
	cfg := executor.LocalConfig{State: state}
	inBubble(t, cfg, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		await(t, begin(t, b, command("true")))
		await(t, begin(t, b, command("true")))
	})
	path := filepath.Join(state, "execs", "journal")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(bytes.TrimRight(content, "\x00"))/2] ^= 1 // there is room behind the records
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Runner = new(executortest.Runner)
	b, err := executor.NewLocal(cfg)
	if err == nil {
		b.Close()
		t.Fatal("a damaged journal was taken")
	}
	for _, word := range []string{"journal", "damaged", "run twice", state} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
}

// Whatever took the files away, the exit status alone must not look like a command that printed nothing.
func TestOutputThatIsMissingAfterARestartIsAGap(t *testing.T) {
	cfg := executor.LocalConfig{State: t.TempDir()}
	inBubble(t, cfg, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		small, large := command("echo", "words"), command("flood", "1000000")
		for _, p := range []wire.ExecParams{small, large} {
			h := begin(t, b, p)
			await(t, h)
			h.Close()
		}
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(cfg.State, "execs", "output", "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files: %v", err)
		}
		for _, f := range files {
			info, err := os.Stat(f)
			if err == nil {
				err = os.Truncate(f, info.Size()/2)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		b = reopen(t, b, cfg)
		for _, p := range []wire.ExecParams{small, large} {
			h := begin(t, b, p)
			gap := false
			for e, err := range h.Events(t.Context(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				gap = gap || e.Gap != nil
				if e.Exit != nil && (!gap || e.Exit.Code != 0) {
					t.Errorf("%s: ended %v, a gap was told: %v", p.Argv[0], *e.Exit, gap)
				}
			}
			h.Close()
		}
	})
}

func TestNoWordOfACommandIsInTheState(t *testing.T) {
	cfg := executor.LocalConfig{State: t.TempDir()}
	inBubble(t, cfg, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		for _, p := range []wire.ExecParams{command("no-such-SECRET"), command("true", "SECRET")} {
			p.Env = []string{"TOKEN=SECRET"}
			if h, err := b.Start(t.Context(), p); err == nil {
				await(t, h)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	})
	content, err := os.ReadFile(filepath.Join(cfg.State, "execs", "journal"))
	if err != nil || bytes.Contains(content, []byte("SECRET")) {
		t.Errorf("a word of a command is in the journal, %v", err)
	}
}

func TestStateWithoutItsJournalIsRefused(t *testing.T) {
	cfg := executor.LocalConfig{State: t.TempDir()}
	inBubble(t, cfg, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		await(t, begin(t, b, command("echo", "x")))
	})
	if err := os.Remove(filepath.Join(cfg.State, "execs", "journal")); err != nil {
		t.Fatal(err)
	}
	cfg.Runner = new(executortest.Runner)
	b, err := executor.NewLocal(cfg)
	if err == nil {
		b.Close()
		t.Fatal("a folder without its journal was taken")
	}
	if !strings.Contains(err.Error(), "missing") || !strings.Contains(err.Error(), "run twice") {
		t.Error(err)
	}
}

// With a disk that takes nothing, what could not be kept is told, also when the exec is read later.
func TestOutputThatNoFileTakesIsToldAsAGap(t *testing.T) {
	cfg := executor.LocalConfig{State: t.TempDir()}
	inBubble(t, cfg, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		if err := os.RemoveAll(filepath.Join(cfg.State, "execs", "output")); err != nil {
			t.Fatal(err)
		}
		attached, detached := command("flood", "2000000"), command("flood", "2000000")
		detached.Detach = true
		for _, p := range []wire.ExecParams{attached, detached} {
			h := begin(t, b, p)
			if _, err := h.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.Close()
			synctest.Wait()
			for range 2 {
				again := begin(t, b, p)
				var bytes, missing uint64
				told := false
				for e, err := range again.Events(t.Context(), 0) {
					switch {
					case err != nil:
						t.Fatal(err)
					case e.Gap != nil:
						told, missing = true, missing+e.Gap.Bytes
					case e.Chunk != nil:
						bytes += uint64(len(e.Chunk.Data))
					}
				}
				if bytes < 2_000_000 && !told {
					t.Errorf("detached %v: %d bytes and no gap", p.Detach, bytes)
				}
				again.Close()
			}
		}
	})
}
