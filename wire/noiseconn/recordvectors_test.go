package noiseconn

import (
	"testing"

	"github.com/postern-relay/postern/wire"
)

type recordsFile struct {
	Key     hexBytes       `json:"key"`
	Records []recordVector `json:"records"`
}

// recordVectors are records under one key: the sizes at which padding changes, a
// message in two parts, those around the first and the second rekey, and the end. What
// lies between them is empty messages.
func recordVectors() recordsFile {
	f := recordsFile{Key: fixed("records", 32)}
	ref := &refRecords{key: f.Key}
	add := func(kind byte, body []byte) {
		n := ref.count
		f.Records = append(f.Records, recordVector{n, kind, body, ref.seal(kind, body)})
	}
	for _, size := range []int{0, 1, 252, 253, 254, 4096, 4097} {
		add(kindLast, fixed("body", size))
	}
	add(kindPart, fixed("first part", 300))
	add(kindLast, fixed("last part", 7))
	add(kindPart, nil) // reserved as padding in time
	for _, rekey := range []uint64{4096, 8192} {
		for ref.count < rekey-1 {
			ref.seal(kindLast, nil)
		}
		for range 3 {
			add(kindLast, fixed("around a rekey", 40))
		}
	}
	add(kindFin, nil)
	return f
}

func TestRecordBytesEqualTheVectors(t *testing.T) {
	f := golden(t, "records-v1.json", recordVectors())
	checkRecords(t, newRecordCipher([32]byte(f.Key)), newRecordCipher([32]byte(f.Key)), f.Records)
}

// checkRecords seals and opens the records that are listed, and empty ones between them.
func checkRecords(t *testing.T, send, receive *recordCipher, records []recordVector) {
	t.Helper()
	seal := func(kind byte, body []byte) []byte {
		rec, err := send.seal(frameRecord(append(make([]byte, 2+recordHead), body...), kind))
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	open := func(rec []byte) (byte, []byte) {
		plain, err := receive.open(append([]byte(nil), rec[2:]...))
		if err != nil {
			t.Fatal(err)
		}
		kind, body, err := parsePlaintext(plain)
		if err != nil {
			t.Fatal(err)
		}
		return kind, body
	}
	for _, r := range records {
		for send.count < r.Number {
			open(seal(kindLast, nil))
		}
		wantBytes(t, "record", seal(r.Kind, r.Body), r.Record)
		kind, body := open(r.Record)
		if kind != r.Kind {
			t.Errorf("record %d: kind %d, want %d", r.Number, kind, r.Kind)
		}
		wantBytes(t, "body", body, r.Body)
	}
}

type channelVector struct {
	Hash           hexBytes     `json:"handshake_hash"`
	ClientRandom   hexBytes     `json:"client_random"`
	ExecutorRandom hexBytes     `json:"executor_random"`
	Secret         hexBytes     `json:"channel_secret"`
	Session        hexBytes     `json:"session"`
	Number         uint64       `json:"n"`
	OpenerRandom   hexBytes     `json:"rc"`
	AnswererRandom hexBytes     `json:"re"`
	Header         hexBytes     `json:"header"`
	Answer         hexBytes     `json:"answer"`
	KeyToAnswerer  hexBytes     `json:"key_to_answerer"`
	KeyToOpener    hexBytes     `json:"key_to_opener"`
	First          recordVector `json:"first_record_to_answerer"`
	Reply          recordVector `json:"first_record_to_opener"`
}

func channelVectors() []channelVector {
	var out []channelVector
	for _, n := range []uint64{1, 0x0102} {
		v := channelVector{
			Hash: fixed("hash", 32), ClientRandom: fixed("client", 32), ExecutorRandom: fixed("executor", 32),
			Session: fixed("session", 16), Number: n, OpenerRandom: fixed("opener", 32), AnswererRandom: fixed("answerer", 32),
		}
		v.Secret = refChannelSecret(v.Hash, v.ClientRandom, v.ExecutorRandom)
		v.Header = append([]byte{2}, v.Session...)
		v.Header = append(v.Header, 0, 0, 0, 0, 0, 0, byte(n>>8), byte(n))
		v.Header = append(v.Header, v.OpenerRandom...)
		v.Answer = append([]byte{2}, v.AnswererRandom...)
		v.KeyToAnswerer = refChannelKey(v.Secret, 0, n, v.OpenerRandom, nil)
		v.KeyToOpener = refChannelKey(v.Secret, 1, n, v.OpenerRandom, v.AnswererRandom)
		body := []byte{0xa2, 1, 0x18, byte(wire.TypePing), 2, 5}
		v.First = recordVector{0, kindLast, body, (&refRecords{key: v.KeyToAnswerer}).seal(kindLast, body)}
		v.Reply = recordVector{0, kindLast, body, (&refRecords{key: v.KeyToOpener}).seal(kindLast, body)}
		out = append(out, v)
	}
	return out
}

// product is the product's session of a channel vector.
func (v *channelVector) product(t testing.TB) *Session {
	t.Helper()
	c := &Conn{secrets: &secrets{hash: [32]byte(v.Hash)}, clock: monotonicClock}
	s, err := NewSession(c, &wire.Hello{Random: [32]byte(v.ClientRandom)}, &wire.Welcome{Session: wire.ID(v.Session), Random: [32]byte(v.ExecutorRandom)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestChannelKeysEqualTheVectors(t *testing.T) {
	for _, v := range golden(t, "channels-v1.json", channelVectors()) {
		s := v.product(t)
		wantBytes(t, "secret", s.secret[:], v.Secret)
		key, err := s.channelKey(toAnswerer, v.Number, v.OpenerRandom, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "key to the answerer", key[:], v.KeyToAnswerer)
		if key, err = s.channelKey(toOpener, v.Number, v.OpenerRandom, v.AnswererRandom); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "key to the opener", key[:], v.KeyToOpener)

		// The opener's bytes, given the vector's number and random.
		stream := newScript(append(append([]byte(nil), v.Answer...), v.Reply.Record...))
		c, err := s.openChannel(stream, v.Number, [32]byte(v.OpenerRandom))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(&wire.Ping{Clock: 5}); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "header and first record", stream.written.Bytes(), append(append([]byte(nil), v.Header...), v.First.Record...))
		if m, err := c.Recv(); err != nil || m.(*wire.Ping).Clock != 5 {
			t.Errorf("the opener reads %v, %v", m, err)
		}
	}
}
