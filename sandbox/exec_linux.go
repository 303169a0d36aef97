package sandbox

import (
	"context"
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// errNotAsked tells that the command has certainly not been run in this sandbox.
var errNotAsked = errors.New("the sandbox was given up before its command was run")

// exec hands the init its command and waits until it runs.
func (p *Process) exec(ctx context.Context, r *run, c Command) error {
	confined, unlimited := p.launcher.confine(p, r)
	err := unlimited
	if err == nil {
		err = p.sendCommand(confined, c)
	}
	switch {
	case unlimited != nil: // the command was not sent
	case err == nil:
		select {
		case err = <-p.started:
		case <-ctx.Done():
			err = ctx.Err()
		}
	default:
		// the init may have gone for a reason that it has told
		_ = p.Kill()
		if serr := <-p.started; serr != nil && !errors.Is(serr, ErrInitLost) {
			err = serr
		} else {
			err = &SetupError{Stage: "request", Err: err}
		}
	}
	if err == nil {
		return nil
	}
	_ = p.Kill()
	<-p.gone
	if p.tty != nil {
		p.tty.Close()
	}
	return err
}

func (p *Process) sendCommand(r *run, c Command) error {
	r.held = p.fresh != nil
	p.dir = r.dir
	var fds []int
	files := []*os.File{c.Stdin, c.Stdout, c.Stderr}
	null := -1
	for _, f := range files {
		if f == nil || c.TTY != nil {
			if null < 0 {
				var err error
				if null, err = unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
					return err
				}
				defer unix.Close(null)
			}
			fds = append(fds, null)
			continue
		}
		fd := int(f.Fd())
		if fd < 0 {
			return os.ErrClosed
		}
		// programs expect files that block; Go's pipes do not until told
		if err := unix.SetNonblock(fd, false); err != nil {
			return err
		}
		if err := p.launcher.givePipe(fd); err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	err := sendLarge(p.sendInit, msgRun, r.encode(), fds...)
	runtime.KeepAlive(files)
	if err != nil || p.fresh == nil {
		return err
	}
	// the init prepares the command meanwhile
	if !p.fresh() {
		return errNotAsked
	}
	return p.sendInit(msgGo, nil)
}

// sendInit tells with errNotAsked that the init is gone.
func (p *Process) sendInit(kind byte, body []byte, fds ...int) error {
	err := p.ctl.send(kind, body, fds...)
	if err == unix.EPIPE || err == unix.ECONNRESET || errors.Is(err, os.ErrClosed) {
		return errors.Join(errNotAsked, err)
	}
	return err
}

// givePipe makes an anonymous pipe of a root daemon the command's own, who could use
// the descriptor anyway but not open it again as /dev/stdin or /dev/stderr.
func (l *Launcher) givePipe(fd int) error {
	if !l.id.asRoot {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.PIPEFS_MAGIC {
		return err
	}
	return unix.Fchown(fd, l.id.uid, l.id.gid)
}
