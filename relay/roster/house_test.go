package roster_test

import (
	"bytes"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

func TestMain(m *testing.M) { wiretest.RunWithoutLeaks(m) }

// house is a roster with its folder and its log.
type house struct {
	*roster.Roster
	t   testing.TB
	dir string
	log *bytes.Buffer
}

// open makes a roster whose operator has listed these lines.
func open(t testing.TB, lines ...string) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), log: new(bytes.Buffer)}
	h.list(lines...)
	h.restart()
	return h
}

// list replaces the operator's list in one step; it is in force after Reload.
func (h *house) list(lines ...string) {
	h.t.Helper()
	draft := filepath.Join(h.dir, "draft")
	if err := os.WriteFile(draft, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(draft, filepath.Join(h.dir, roster.ListedFile)); err != nil {
		h.t.Fatal(err)
	}
}

// relist is list, in force.
func (h *house) relist(lines ...string) {
	h.t.Helper()
	h.list(lines...)
	if err := h.Reload(); err != nil {
		h.t.Fatal(err)
	}
}

// restart opens the folder anew, as another process does.
func (h *house) restart() {
	h.t.Helper()
	r, err := roster.Open(h.dir, slog.New(slog.NewTextHandler(h.log, nil)))
	if err != nil {
		h.t.Fatal(err)
	}
	h.Roster = r
}

func (h *house) path() string { return filepath.Join(h.dir, roster.EnrolledFile) }

// disk is what the relay's own list says on disk, "" if there is none.
func (h *house) disk() string {
	h.t.Helper()
	b, err := os.ReadFile(h.path())
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return string(b)
}

// used is how often a token was used, in force and on disk.
func (h *house) used(tok token) int {
	h.t.Helper()
	inForce, known := h.Current().Join(tok.id)
	onDisk, err := keys.ParseTenants("enrolled", strings.NewReader(h.disk()))
	if err != nil {
		h.t.Fatal(err)
	}
	written, also := onDisk.Join(tok.id)
	if !known || !also || inForce.Used != written.Used {
		h.t.Fatalf("token in force: %v, used %d; on disk: %v, used %d", known, inForce.Used, also, written.Used)
	}
	return written.Used
}

func newKey(t testing.TB, kind keys.Kind) keys.PublicKey {
	t.Helper()
	key, err := keys.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return key.Public()
}

// token is a join token as its maker has it.
type token struct {
	id      keys.TokenID
	secret  [32]byte
	pairing [32]byte
}

func newToken() token {
	var tok token
	for _, b := range [][]byte{tok.id[:], tok.secret[:], tok.pairing[:]} {
		_, _ = rand.Read(b) // never fails
	}
	return tok
}

// request asks for the token as its maker's client does.
func (tok token) request(pattern string, uses int, ttl time.Duration) *wire.AddToken {
	return &wire.AddToken{
		ID: wire.ID(tok.id), Hash: keys.HashJoinSecret(tok.id, tok.secret), Pattern: pattern,
		Uses: uint32(uses), TTLMillis: uint64(ttl / time.Millisecond),
	}
}

// proof is what the executor shows.
func (tok token) proof(key keys.PublicKey, name string) *wire.JoinProof {
	return &wire.JoinProof{Token: wire.ID(tok.id), Secret: tok.secret, MAC: keys.AnnouncementMAC(tok.pairing, tok.id, key, name)}
}

// line is the line of a member in a list.
func line(m keys.Member) string { return string(m.Key.Kind()) + " " + m.Key.String() + " " + m.Name }

// acme opens a roster of one tenant and returns a client of it.
func acme(t testing.TB, lines ...string) (*house, keys.Member) {
	t.Helper()
	alice := keys.Member{Key: newKey(t, keys.Client), Name: "alice", Tenant: "acme"}
	return open(t, append([]string{"tenant acme", line(alice)}, lines...)...), alice
}

// two is acme with a second tenant named other, whose client bob is.
func two(t testing.TB, lines ...string) (h *house, alice, bob keys.Member) {
	t.Helper()
	bob = keys.Member{Key: newKey(t, keys.Client), Name: "bob", Tenant: "other"}
	h, alice = acme(t, append([]string{"tenant other", line(bob)}, lines...)...)
	return h, alice, bob
}

// add makes a token of the client's tenant.
func (h *house) add(by keys.Member, pattern string, uses int) token {
	h.t.Helper()
	tok := newToken()
	if err := h.AddToken(by, tok.request(pattern, uses, time.Hour)); err != nil {
		h.t.Fatal(err)
	}
	return tok
}

// come joins, and wants a result.
func (h *house) come(tok token, key keys.PublicKey, name string, want roster.JoinResult) (keys.Member, *wire.Error) {
	h.t.Helper()
	before := h.disk()
	m, got, err := h.Join(key, name, tok.proof(key, name))
	if got != want || (err == nil) != (want == roster.Joined || want == roster.JoinAgain) {
		h.t.Fatalf("join as %s: %s, %v, want %s", name, got, err, want)
	}
	if got != roster.Joined && h.disk() != before {
		h.t.Errorf("join with the result %s changed the list", got)
	}
	if err != nil && m != (keys.Member{}) {
		h.t.Errorf("a refused join gave %+v", m)
	}
	return m, err
}

// wantRefused wants an answer with a code and a text.
func wantRefused(t testing.TB, what string, err *wire.Error, code wire.Code) {
	t.Helper()
	if err == nil || err.Code != code || err.Text == "" {
		t.Errorf("%s: %v, want code %v and a text", what, err, code)
	}
}
