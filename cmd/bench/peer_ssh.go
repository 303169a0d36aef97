//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// sshSettings are what the sides of the ssh peer differ in.
type sshSettings struct {
	name   string
	kex    string // empty: OpenSSH's own order
	cipher string // the same
	// noDelay keeps Nagle's algorithm off both connections to the jump host. Its sshd turns that off at the first
	// session of a connection and not for forwarding, so `ssh -N -R` and ProxyJump leave it on, and a small packet
	// waits there for the other end's delayed acknowledgement, 40 ms. So the tunnel runs a command beside its -R, and the
	// client reaches the jump host through a ControlMaster that runs one too.
	noDelay bool
}

var sshVariants = []sshSettings{
	{name: sshDefault},
	{name: sshCurve, kex: "curve25519-sha256"},
	{name: sshGCM, cipher: "aes128-gcm@openssh.com"},
	{name: sshTuned, kex: "curve25519-sha256", cipher: "aes128-gcm@openssh.com", noDelay: true},
}

// sshPrograms are where the peer's programs are.
type sshPrograms struct{ ssh, sshd, keygen string }

// findSSH fails with fs.ErrNotExist where a program is not installed. sshd wants to be called by its whole path, which
// an ordinary user's PATH may lack.
func findSSH() (p sshPrograms, err error) {
	for name, at := range map[string]*string{"ssh": &p.ssh, "sshd": &p.sshd, "ssh-keygen": &p.keygen} {
		if *at, err = exec.LookPath(name); err != nil {
			*at = "/usr/sbin/" + name
			if _, err := os.Stat(*at); err != nil {
				return p, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
			}
		}
	}
	return p, nil
}

// sshSite is one ssh peer: two sshd, the tunnel between them, and the connections that a ControlMaster keeps.
type sshSite struct {
	sshSettings
	programs  sshPrograms
	dir       string
	jump      *daemon
	daemons   []*daemon // in order of start
	near, far *tcpDelay
	// What was negotiated, for the report.
	version, agreedKex, agreedCipher string
}

// newSSH brings a peer up, and returns when a command has run on it, cold and through the ControlMaster.
func newSSH(ctx context.Context, p sshPrograms, dir string, o sshSettings, delay time.Duration) (_ *sshSite, err error) {
	s := &sshSite{sshSettings: o, programs: p, dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := os.MkdirAll(filepath.Join(dir, "home"), 0o700); err != nil {
		return nil, err
	}
	var address [3]string // executor's sshd, jump sshd, the tunnel's end at the jump host
	for i := range address {
		if address[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	client, tunnel := address[1], address[1]
	if delay > 0 {
		if s.near, err = newTCPDelay(address[1], delay); err != nil {
			return nil, err
		}
		if s.far, err = newTCPDelay(address[1], delay); err != nil {
			return nil, err
		}
		client, tunnel = s.near.address(), s.far.address()
	}
	if err := s.configure(ctx, address, client, tunnel); err != nil {
		return nil, err
	}
	for i, name := range []string{"exec", "jump"} {
		d, err := s.serve(ctx, name, address[i])
		if err != nil {
			return nil, err
		}
		s.jump = d // the last one
	}
	if err := s.connect(ctx, address); err != nil {
		return nil, err
	}
	return s, s.negotiated(ctx)
}

// serve starts one sshd.
func (s *sshSite) serve(ctx context.Context, name, address string) (*daemon, error) {
	d, err := s.start(exec.Command(s.programs.sshd, "-D", "-e", "-f", filepath.Join(s.dir, "sshd_"+name)), name, false)
	if err != nil {
		return nil, err
	}
	return d, s.ready(ctx, d, func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}

func (s *sshSite) start(cmd *exec.Cmd, name string, input bool) (*daemon, error) {
	cmd.Env = plainEnv(filepath.Join(s.dir, "home"))
	d, err := startDaemon(cmd, filepath.Join(s.dir, name+".log"), input)
	if err == nil {
		s.daemons = append(s.daemons, d)
	}
	return d, err
}

// ready waits until yes, or until the daemon has ended.
func (s *sshSite) ready(ctx context.Context, d *daemon, yes func() bool) error {
	ended := false
	err := await(ctx, "ready", startPatience, func() bool {
		select {
		case <-d.ended:
			ended = true
		default:
		}
		return ended || yes()
	})
	if ended || err != nil {
		return d.failed("it does not get ready")
	}
	return nil
}

// connect opens the tunnel and the ControlMaster.
func (s *sshSite) connect(ctx context.Context, address [3]string) error {
	forward := []string{"-R", address[2] + ":" + address[0], "-o", "ExitOnForwardFailure=yes", "tunnel"}
	if s.noDelay {
		forward = append(forward, "cat") // a session; its input stays open
	} else {
		forward = append([]string{"-N"}, forward...)
	}
	tunnel, err := s.start(s.client(context.Background(), forward...), "tunnel", s.noDelay)
	if err != nil {
		return err
	}
	if err := s.ready(ctx, tunnel, func() bool { return s.client(ctx, "exec", "true").Run() == nil }); err != nil {
		return err
	}
	if s.noDelay {
		if err := s.master(ctx, "jump", "cat"); err != nil {
			return err
		}
	}
	return s.master(ctx, "execwarm")
}

// master opens the ControlMaster of a host: with a command, so that the connection has a session, or without.
func (s *sshSite) master(ctx context.Context, host string, command ...string) error {
	args := append([]string{"-M", "-S", s.control(host), host}, command...)
	if len(command) == 0 {
		args = append([]string{"-N"}, args...)
	}
	d, err := s.start(s.client(context.Background(), args...), "master_"+host, len(command) > 0)
	if err != nil {
		return err
	}
	return s.ready(ctx, d, func() bool {
		return s.client(ctx, "-S", s.control(host), "-O", "check", host).Run() == nil
	})
}

func (s *sshSite) control(host string) string { return filepath.Join(s.dir, "cm_"+host) }

// client is ssh with nobody's configuration but ours.
func (s *sshSite) client(ctx context.Context, args ...string) *exec.Cmd {
	cmd := prepare(exec.CommandContext(ctx, s.programs.ssh, append([]string{"-F", filepath.Join(s.dir, "config")}, args...)...))
	cmd.Env = plainEnv(filepath.Join(s.dir, "home"))
	return cmd
}

// cold is a command over connections of its own.
func (s *sshSite) cold(ctx context.Context, argv ...string) *exec.Cmd {
	return s.client(ctx, append([]string{"exec"}, argv...)...)
}

// warm is a command through the ControlMaster.
func (s *sshSite) warm(ctx context.Context, argv ...string) *exec.Cmd {
	return s.client(ctx, append([]string{"-S", s.control("execwarm"), "execwarm"}, argv...)...)
}

var (
	agreedKex    = regexp.MustCompile(`kex: algorithm: (\S+)`)
	agreedCipher = regexp.MustCompile(`kex: server->client cipher: (\S+) MAC: (\S+)`)
	softwareName = regexp.MustCompile(`remote software version (\S+(?: \S+)?)`)
)

// negotiated asks ssh itself what it agreed on.
func (s *sshSite) negotiated(ctx context.Context) error {
	var said strings.Builder
	cmd := s.client(ctx, "-v", "exec", "true")
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ssh -v: %w", err)
	}
	kex, cipher, name := agreedKex.FindStringSubmatch(said.String()), agreedCipher.FindStringSubmatch(said.String()), softwareName.FindStringSubmatch(said.String())
	if kex == nil || cipher == nil || name == nil {
		return errors.New("ssh -v does not say what was negotiated")
	}
	s.agreedKex, s.agreedCipher, s.version = kex[1], cipher[1]+", MAC "+strings.Trim(cipher[2], "<>"), strings.TrimSpace(name[1])
	return nil
}

// processorTime is what the jump host's sshd and its children have used so far, in seconds.
func (s *sshSite) processorTime() float64 { return treeCPU(s.jump.cmd.Process.Pid) }

func (s *sshSite) close() {
	for i := len(s.daemons) - 1; i >= 0; i-- {
		s.daemons[i].stop()
	}
	for _, leg := range []*tcpDelay{s.near, s.far} {
		if leg != nil {
			leg.close()
		}
	}
}

// configure makes the keys and the files of both sshd and of the client.
func (s *sshSite) configure(ctx context.Context, address [3]string, client, tunnel string) error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	public := make(map[string]string)
	for _, name := range []string{"exec", "jump", "client"} {
		file := filepath.Join(s.dir, "key_"+name)
		if err := runOnce(prepare(exec.CommandContext(ctx, s.programs.keygen, "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file))); err != nil {
			return err
		}
		text, err := os.ReadFile(file + ".pub")
		if err != nil {
			return err
		}
		public[name] = strings.TrimSpace(string(text))
	}
	both := ""
	if s.kex != "" {
		both += "KexAlgorithms " + s.kex + "\n"
	}
	if s.cipher != "" {
		both += "Ciphers " + s.cipher + "\n"
	}
	port := func(address string) string {
		_, p, _ := net.SplitHostPort(address) // one of ours
		return p
	}
	files := map[string]string{
		"authorized_keys": public["client"] + "\n",
		"known_hosts":     "exec " + public["exec"] + "\njump " + public["jump"] + "\n",
		"sshd_exec":       s.serverConfig("exec", port(address[0])) + both,
		"sshd_jump":       s.serverConfig("jump", port(address[1])) + both,
		"config":          s.clientConfig(me.Username, port(client), port(tunnel), port(address[2])) + both,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if me.Uid == "0" { // sshd of a root wants it, and no package may have made it yet
		return os.MkdirAll("/run/sshd", 0o755)
	}
	return nil
}

// serverConfig lets in who has the client's key. The home is an empty one: a shell's start-up files are not
// the transport's time.
func (s *sshSite) serverConfig(name, port string) string {
	return fmt.Sprintf(`ListenAddress 127.0.0.1:%s
HostKey %s
PidFile none
AuthorizedKeysFile %s
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UseDNS no
PrintMotd no
PrintLastLog no
SetEnv HOME=%s
MaxStartups 200
MaxSessions 1000
LogLevel ERROR
`, port, filepath.Join(s.dir, "key_"+name), filepath.Join(s.dir, "authorized_keys"), filepath.Join(s.dir, "home"))
}

func (s *sshSite) clientConfig(login, client, tunnel, reverse string) string {
	way := "ProxyJump jump"
	if s.noDelay {
		way = fmt.Sprintf("ProxyCommand %s -F %s -S %s -W %%h:%%p jump", s.programs.ssh, filepath.Join(s.dir, "config"), s.control("jump"))
	}
	return fmt.Sprintf(`Host exec execwarm
Port %s
HostKeyAlias exec
Host exec
ProxyJump jump
Host execwarm
%s
Host jump
Port %s
HostKeyAlias jump
Host tunnel
Port %s
HostKeyAlias jump
Host *
HostName 127.0.0.1
User %s
IdentityFile %s
IdentitiesOnly yes
IdentityAgent none
UserKnownHostsFile %s
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
PreferredAuthentications publickey
GSSAPIAuthentication no
Compression no
BatchMode yes
LogLevel ERROR
`, reverse, way, client, tunnel, login, filepath.Join(s.dir, "key_client"), filepath.Join(s.dir, "known_hosts"))
}
