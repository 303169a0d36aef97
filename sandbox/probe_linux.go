package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Probe tries every layer for real in child processes and tells which ones work.
// It changes nothing and needs no command. The context bounds the whole of it.
func Probe(ctx context.Context, o Options) Report {
	var r Report
	add := func(name string, err error) {
		l := Layer{Name: name, OK: err == nil}
		var missing *UnsupportedError
		switch {
		case errors.As(err, &missing):
			l.Reason, l.Remedy = missing.Missing[0].Reason, missing.Missing[0].Remedy
		case err != nil:
			l.Reason = err.Error()
		}
		r.Layers = append(r.Layers, l)
	}
	o.WarmPerPolicy = -1 // nothing is to be kept
	l, err := NewLauncher(o)
	if err != nil {
		add("options", err)
		return r
	}
	defer l.Close()
	if o.Reduced {
		add("landlock", reducedSupport())
		add("seccomp", l.try("seccomp", 0))
		add("reduced sandbox", l.tryReduced(ctx))
		r.Layers = append(r.Layers, groupLayer())
		return r
	}
	for _, t := range []struct {
		layer string
		flags uintptr
	}{
		{"user namespaces", unix.CLONE_NEWUSER}, {"all namespaces", sandboxNamespaces}, {"landlock", 0}, {"seccomp", 0},
	} {
		if ctx.Err() != nil {
			add(t.layer, ctx.Err())
			continue
		}
		add(t.layer, l.try(t.layer, t.flags))
	}
	if l.id.asRoot {
		add("id-mapped mounts", l.tryMapping())
	}
	add("complete sandbox", l.tryAll(ctx))
	r.Layers = append(r.Layers, groupLayer())
	return r
}

// groupLayer tells which limits can be set on a whole command.
func groupLayer() Layer {
	c := findCgroups()
	if c.version == 0 {
		return Layer{
			Name: "cgroup limits", Optional: true, Reason: c.why,
			Remedy: "run the executor as root, or under systemd with Delegate=yes; without, memory and process limits bound each process",
		}
	}
	return Layer{Name: "cgroup limits", Optional: true, OK: true, Detail: fmt.Sprintf("v%d: %s", c.version, c.controllers())}
}

// try runs one layer in a child that ends at once.
func (l *Launcher) try(layer string, flags uintptr) error {
	var pair [2]int
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		unix.Close(pair[1])
		return err
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Env: helperEnv(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(pair[1])}}
	if flags != 0 {
		attr.Sys = l.id.attr(flags)
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{roleTry, layer}, attr)
	unix.Close(pair[1])
	if err != nil {
		return explain(fail("namespaces", "", err))
	}
	defer reapProcess(pid)
	kind, body, fds, err := recvMessage(pair[0], 0)
	closeAll(fds)
	switch {
	case err != nil:
		return &SetupError{Stage: layer, Err: errors.New("the child that tried it died")}
	case kind == msgError:
		return decodeError(body)
	}
	return nil
}

// tryMain is the child of try.
func tryMain() {
	var err error
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "landlock":
			if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err == nil {
				err = landlock([]landlockRule{{"/", llLook}}, -1)
			}
		case "seccomp":
			if err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err == nil {
				err = installFilter()
			}
		}
	}
	if err != nil {
		exitWith(err)
	}
	_ = sendMessage(controlFD, 0, msgReady, nil)
	unix.Exit(0)
}

func (l *Launcher) tryMapping() error {
	ns, err := l.mappingFor(owner{0, 0})
	if err != nil {
		return explain(fail("namespaces", "", err))
	}
	ctx, err := newFS("tmpfs", 0)
	if err != nil {
		return explain(fail("view", "tmpfs", err))
	}
	defer unix.Close(ctx)
	if err := mapOwner(ctx, ns); err != nil {
		return &UnsupportedError{Missing: []Layer{{Name: "id-mapped mounts", Reason: err.Error(), Remedy: "use Linux 6.3 or later, or workspaces that belong to the command's uid"}}}
	}
	return nil
}

// tryReduced runs the shortest command.
func (l *Launcher) tryReduced(ctx context.Context) error {
	p, err := l.Start(ctx, Policy{Mode: ReadOnly}, Command{Argv: []string{"true"}})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

// tryAll builds a whole sandbox, to the point where it waits for a command.
func (l *Launcher) tryAll(ctx context.Context) error {
	pl, err := l.resolve(Policy{Mode: ReadOnly})
	if err != nil {
		return err
	}
	p, err := l.launch(pl, nil)
	if err != nil {
		pl.release()
		return err
	}
	select {
	case <-p.ready:
	case <-p.gone:
		return <-p.started
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = p.Kill()
	<-p.gone
	return err
}
