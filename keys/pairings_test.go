package keys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// testPairing remembers testToken.
func testPairing(t testing.TB) Pairing {
	t.Helper()
	token := testToken(t)
	return Pairing{ID: token.ID, Secret: token.Pairing, Relay: token.Relay, Pattern: token.Pattern, Uses: 2, Expires: token.Expires}
}

// pairingText is the line of a pairing, written without this package's code.
func pairingText(p Pairing) string {
	return fmt.Sprintf("%x %s %s name=%s uses=%d expires=%s", p.ID[:], independentText("pairsecret", p.Secret[:]), p.Relay, p.Pattern, p.Uses, p.Expires.Format(time.RFC3339))
}

func TestPairingsAreFound(t *testing.T) {
	t.Parallel()
	one := testPairing(t)
	two := one
	two.ID = TokenID{9}
	two.Pinned = []PublicKey{fixedKey(t, Executor, 1), fixedKey(t, Executor, 2)}
	text := "# mine\n" + pairingText(one) + "\r\n\n" + pairingText(two) + "\tpinned=" + two.Pinned[0].String() + " pinned=" + two.Pinned[1].String()
	pairings, err := ParsePairings("pairings", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := pairings.All(); !reflect.DeepEqual(got, []Pairing{one, two}) {
		t.Errorf("All() is not what the file says: %d pairings", len(got))
	}
	got, ok := pairings.Lookup(two.ID)
	if !ok || !reflect.DeepEqual(got, two) {
		t.Error("Lookup does not find the second pairing")
	}
	got.Pinned[0] = PublicKey{}
	pairings.All()[1].Pinned[0] = PublicKey{}
	if again, _ := pairings.Lookup(two.ID); again.Pinned[0].IsZero() {
		t.Error("a caller changed the list")
	}
	for _, none := range []*Pairings{nil, {}} {
		if _, ok := none.Lookup(one.ID); ok || len(none.All()) != 0 {
			t.Error("nil or the zero value holds a pairing")
		}
	}
}

func TestPairingsFileWithOneBadLineIsRefusedWhole(t *testing.T) {
	t.Parallel()
	good := pairingText(testPairing(t))
	columns := strings.Fields(good)
	secret := columns[1]
	other := "1" + good[1:]
	with := func(column int, text string) string {
		changed := strings.Fields(other)
		changed[column] = text
		return strings.Join(changed, " ")
	}
	key := fixedKey(t, Executor, 1).String()
	for name, test := range map[string]struct{ line, want string }{
		"token twice":         {good, "is already on line 1"},
		"id cut short":        {other[1:], "32 lower-case hex digits"},
		"id of nobody":        {with(0, strings.Repeat("0", 32)), "no token's"},
		"secret alone":        {secret, "1 fields"},
		"no secret":           {strings.Replace(other, secret+" ", "", 1), "does not come second"},
		"private key":         {with(1, generate(t, Executor).Secret()), "does not come second"},
		"secret cut short":    {with(1, secret[:50]), "characters"},
		"secret's checksum":   {with(1, secret[:30]+"77"+secret[32:]), "checksum"},
		"secret of a key":     {with(1, "pairsecret_"+strings.TrimPrefix(independentText("execsecret", make([]byte, 32)), "execsecret_")), "checksum"},
		"secret of zeros":     {with(1, independentText("pairsecret", make([]byte, 32))), "all-zero secret"},
		"relay without a key": {with(2, "postern://h:1"), "no key"},
		"columns reversed":    {with(2, secret), "does not start with postern://"},
		"two stars":           {with(3, "name=**"), "more than one *"},
		"name left out":       {with(3, ""), "missing"},
		"uses left out":       {with(4, ""), "missing"},
		"no uses":             {with(4, "uses=0"), "want a number"},
		"end left out":        {with(5, ""), "missing"},
		"time with zone":      {with(5, "expires=2026-12-01T00:00:00+01:00"), "want a time in UTC"},
		"option twice":        {other + " uses=2", `option "uses" is given twice`},
		"unknown option":      {other + " until=2", `unknown option "until"`},
		"secret as an option": {other + " " + secret, "a word too many"},
		"secret, mistyped":    {other + " " + secret + "=x", "unknown option"},
		"client pinned":       {other + " pinned=" + fixedKey(t, Client, 1).String(), "a client's key"},
		"secret pinned":       {other + " pinned=" + secret, "private key"},
		"key pinned twice":    {other + " pinned=" + key + " pinned=" + key, "pinned twice"},
		"too many pinned": {
			other + " pinned=" + key + " pinned=" + fixedKey(t, Executor, 2).String() + " pinned=" + fixedKey(t, Executor, 3).String(), "3 keys are pinned by a token of 2 uses",
		},
	} {
		pairings, err := ParsePairings("file", strings.NewReader(good+"\n"+test.line+"\n"))
		if err == nil || pairings != nil || !strings.HasPrefix(err.Error(), "file:2: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error at file:2 that says %q", name, err, test.want)
			continue
		}
		if strings.Contains(err.Error(), secret[11:23]) {
			t.Errorf("%s: the error repeats the secret: %v", name, err)
		}
	}
}

func TestPairingVerifiesOnlyWhoHadTheToken(t *testing.T) {
	t.Parallel()
	pairing, one, two, three := testPairing(t), fixedKey(t, Executor, 1), fixedKey(t, Executor, 2), fixedKey(t, Executor, 3)
	mac := func(key PublicKey, name string) [32]byte {
		return AnnouncementMAC(pairing.Secret, pairing.ID, key, name)
	}
	good := mac(one, "builder-1")
	pinned, full, other, closed := pairing, pairing, pairing, pairing
	pinned.Pinned = []PublicKey{two}
	full.Pinned = []PublicKey{two, three}
	other.Secret[0]++
	closed.Uses = 0
	wrong := good
	wrong[31] ^= 1
	client := fixedKey(t, Client, 1)
	for name, test := range map[string]struct {
		pairing Pairing
		key     PublicKey
		name    string
		mac     [32]byte
		want    string // "" verifies
	}{
		"first":          {pairing, one, "builder-1", good, ""},
		"second":         {pinned, one, "builder-1", good, ""},
		"again":          {full, two, "builder-2", mac(two, "builder-2"), ""},
		"third":          {full, one, "builder-1", good, "all of them came before"},
		"no uses":        {closed, one, "builder-1", good, "was for 0 executors"},
		"wrong MAC":      {pairing, one, "builder-1", wrong, "do not trust"},
		"no MAC":         {pairing, one, "builder-1", [32]byte{}, "do not trust"},
		"other key":      {pairing, two, "builder-1", good, "do not trust"},
		"other name":     {pairing, one, "builder-2", good, "do not trust"},
		"other secret":   {other, one, "builder-1", good, "do not trust"},
		"name not meant": {pairing, one, "runner-1", mac(one, "runner-1"), "does not allow"},
		"no name":        {pairing, one, "", mac(one, ""), "does not allow"},
		"client":         {pairing, client, "builder-1", mac(client, "builder-1"), "a client's key"},
		"no key":         {pairing, PublicKey{}, "builder-1", mac(PublicKey{}, "builder-1"), "an unknown kind's key"},
		"nothing":        {Pairing{}, one, "builder-1", AnnouncementMAC([32]byte{}, TokenID{}, one, "builder-1"), "no token"},
		"no secret":      {Pairing{ID: pairing.ID, Pattern: "*", Uses: 1}, one, "b", AnnouncementMAC([32]byte{}, pairing.ID, one, "b"), "no token"},
	} {
		err := test.pairing.Verify(test.key, test.name, test.mac)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Verify = %v, want %q", name, err, test.want)
		}
	}
}

func TestPairingsFileIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pairings")
	if _, err := ReadPairings(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadPairings of a missing file: %v, want fs.ErrNotExist", err)
	}
	pairing := testPairing(t)
	if err := AddPairing(path, pairing); err != nil {
		t.Fatal(err)
	}
	wantMode(t, path, 0o600)
	if !modesMatter {
		t.Skip("files have no modes here")
	}
	before := readText(t, path)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := ReadPairings(path)
		for what, err := range map[string]error{
			"ReadPairings": err, "AddPairing": AddPairing(path, pairing), "UpdatePairing": UpdatePairing(path, pairing), "RemovePairing": RemovePairing(path, pairing.ID),
		} {
			if err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
				t.Errorf("%s at mode %04o: %v, want an error that says how to repair it", what, mode, err)
			}
		}
	}
	if readText(t, path) != before {
		t.Error("a file that others can use was changed")
	}
}

func TestPairingsAreAddedUpdatedAndRemoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pairings")
	one, key := testPairing(t), fixedKey(t, Executor, 1)
	two := one
	two.ID, two.Expires = TokenID{9}, two.Expires.Add(time.Millisecond).In(time.FixedZone("", 3600))
	writeText(t, path, "# mine\r\n", 0o600)
	for range 2 { // the same again changes nothing
		for _, pairing := range []Pairing{one, two} {
			if err := AddPairing(path, pairing); err != nil {
				t.Fatal(err)
			}
		}
	}
	two.Expires = one.Expires
	want := "# mine\r\n" + pairingText(one) + "\n" + pairingText(two) + "\n"
	if readText(t, path) != want {
		t.Errorf("file holds\n%s", readText(t, path))
	}
	changed, stranger, spoilt := one, one, one
	changed.Uses++
	stranger.ID = TokenID{7}
	spoilt.Pinned = []PublicKey{fixedKey(t, Client, 1)}
	crowded := one
	crowded.Pinned = []PublicKey{key, fixedKey(t, Executor, 2), fixedKey(t, Executor, 3)}
	for name, err := range map[string]error{
		"other of the same id": AddPairing(path, changed),
		"nothing":              AddPairing(path, Pairing{}),
		"client pinned":        UpdatePairing(path, spoilt),
		"too many pinned":      UpdatePairing(path, crowded),
	} {
		if err == nil || errors.Is(err, ErrNotListed) {
			t.Errorf("%s: %v, want an error", name, err)
		}
	}
	for name, err := range map[string]error{
		"update a stranger": UpdatePairing(path, stranger), "remove a stranger": RemovePairing(path, stranger.ID),
		"update without a file": UpdatePairing(path+"x", one), "remove without a file": RemovePairing(path+"x", one.ID),
	} {
		if !errors.Is(err, ErrNotListed) {
			t.Errorf("%s: %v, want ErrNotListed", name, err)
		}
	}
	if readText(t, path) != want {
		t.Errorf("after refused edits the file holds\n%s", readText(t, path))
	}
	one.Pinned = []PublicKey{key}
	if err := UpdatePairing(path, one); err != nil {
		t.Error(err)
	}
	if err := RemovePairing(path, two.ID); err != nil {
		t.Error(err)
	}
	if want := "# mine\r\n" + pairingText(one) + " pinned=" + key.String() + "\n"; readText(t, path) != want {
		t.Errorf("file holds\n%swant\n%s", readText(t, path), want)
	}
	pairings, err := ReadPairings(path)
	if got, ok := pairings.Lookup(one.ID); err != nil || !ok || !reflect.DeepEqual(got, one) {
		t.Errorf("the pairing does not come back: %v", err)
	}
}

// TestConcurrentPinsTakeNoUseBack: of two programs that pin at once each knows of its own key only.
func TestConcurrentPinsTakeNoUseBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pairings")
	pairing := testPairing(t)
	pairing.Uses = 200 // and a line longer than those of other files
	if err := AddPairing(path, pairing); err != nil {
		t.Fatal(err)
	}
	var all []PublicKey
	for i := range pairing.Uses {
		all = append(all, fixedKey(t, Executor, byte(i)))
	}
	var group sync.WaitGroup
	for part := range 10 {
		group.Go(func() {
			mine := pairing
			mine.Pinned = all[part*20 : part*20+20]
			if err := UpdatePairing(path, mine); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	pairings, err := ReadPairings(path)
	if got, _ := pairings.Lookup(pairing.ID); err != nil || len(got.Pinned) != pairing.Uses {
		t.Errorf("%d keys are pinned, %v, want %d", len(got.Pinned), err, pairing.Uses)
	}
	pairing.Pinned = []PublicKey{fixedKey(t, Executor, 250)}
	if err := UpdatePairing(path, pairing); err == nil {
		t.Error("a key more than the uses was pinned")
	}
}

func TestPairingNeverPrints(t *testing.T) {
	t.Parallel()
	pairing := testPairing(t)
	checkRedacted(t, pairing, pairing.Secret)
	pairings, err := ParsePairings("f", strings.NewReader(pairingText(pairing)))
	if err != nil {
		t.Fatal(err)
	}
	checkRedacted(t, *pairings, pairing.Secret)
}

// FuzzParsePairings: what parses, written anew, parses to the same, and every key in it stands in the text.
func FuzzParsePairings(f *testing.F) {
	good, key := pairingText(testPairing(f)), fixedKey(f, Executor, 1).String()
	for _, text := range []string{
		"", "# none", good, good + "\r\n\n1" + good[1:] + "\tpinned=" + key, good + "\n" + good, good[1:], good + " pinned=x",
		strings.Replace(good, "uses=2", "uses=1", 1) + " pinned=" + key + " pinned=" + fixedKey(f, Executor, 2).String(),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pairings, err := ParsePairings("f", strings.NewReader(text))
		if err != nil {
			return
		}
		var written strings.Builder
		for _, pairing := range pairings.All() {
			line, err := pairingLine(pairing)
			if err != nil {
				t.Fatal(err)
			}
			written.WriteString(line + "\n")
			for _, key := range pairing.Pinned {
				if !strings.Contains(text, "pinned="+key.String()) {
					t.Errorf("%v is pinned, which the text does not say", key)
				}
			}
			if len(pairing.Pinned) > pairing.Uses || pairing.Secret == ([32]byte{}) {
				t.Error("a pairing was read that verifies too much")
			}
		}
		again, err := ParsePairings("f", strings.NewReader(written.String()))
		if err != nil || !reflect.DeepEqual(again.All(), pairings.All()) {
			t.Errorf("written anew: %v", err)
		}
	})
}
