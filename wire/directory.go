package wire

import (
	"errors"
	"time"
)

// A member of a tenant asks its relay for something by a stream of its own, which begins with a
// request frame. The relay answers with any number of items and then one Reply; nothing follows it.

// Reply ends the answer to a request. Code zero means that it was carried out.
type Reply struct {
	Code        Code   `cbor:"2,keyasint,omitempty"`
	Text        string `cbor:"3,keyasint,omitempty"`
	RetryMillis uint64 `cbor:"4,keyasint,omitempty"`
}

// Type is TypeReply.
func (*Reply) Type() Type { return TypeReply }

func (m *Reply) check() error { return checkCode(m.Code, m.Text, false) }

// Err is nil when the request was carried out.
func (m *Reply) Err() error {
	if m.Code == 0 {
		return nil
	}
	return &Error{Code: m.Code, Text: m.Text, RetryAfter: millis(m.RetryMillis)}
}

// NewReply is the end of an answer: err is nil, or the refusal.
func NewReply(err *Error) *Reply {
	if err == nil {
		return &Reply{}
	}
	return &Reply{Code: err.Code, Text: cutText(err.Text), RetryMillis: toMillis(err.RetryAfter)}
}

// ListExecutors asks for the executors of the client's own tenant: an ExecutorItem each.
type ListExecutors struct{}

// Type is TypeListExecutors.
func (*ListExecutors) Type() Type   { return TypeListExecutors }
func (*ListExecutors) check() error { return nil }

// ExecutorItem is one executor of the tenant. It is what the relay says: a client believes the
// key only when MAC proves, under the pairing secret of a token that it made itself, that the
// executor has announced key and name.
type ExecutorItem struct {
	Executor Bytes32  `cbor:"2,keyasint"` // public key
	Name     string   `cbor:"3,keyasint"`
	Online   bool     `cbor:"4,keyasint,omitempty"`
	Seen     int64    `cbor:"5,keyasint,omitempty"` // when it was last connected, Unix milliseconds; zero: not since the relay began
	Token    *ID      `cbor:"6,keyasint,omitempty"` // that it was enrolled with
	MAC      *Bytes32 `cbor:"7,keyasint,omitempty"` // of its announcement
	Follows  *Bytes32 `cbor:"8,keyasint,omitempty"` // the key that this one is to replace
}

// Type is TypeExecutorItem.
func (*ExecutorItem) Type() Type { return TypeExecutorItem }

func (m *ExecutorItem) check() error {
	switch {
	case m.Executor == [32]byte{}:
		return errors.New("no executor key")
	case len(m.Name) > 255:
		return errors.New("name too long")
	case (m.Token == nil) != (m.MAC == nil):
		return errors.New("token and announcement come together")
	}
	return nil
}

// AddToken makes the relay accept a join secret for the client's tenant. Only the secret's hash
// is told. The same token again is carried out already.
type AddToken struct {
	ID        ID      `cbor:"2,keyasint"`
	Hash      Bytes32 `cbor:"3,keyasint"`
	Pattern   string  `cbor:"4,keyasint"` // of the names that executors may take
	Uses      uint32  `cbor:"5,keyasint"`
	TTLMillis uint64  `cbor:"6,keyasint"` // on the relay's clock, from its receipt
}

// Type is TypeAddToken.
func (*AddToken) Type() Type { return TypeAddToken }

func (m *AddToken) check() error {
	switch {
	case m.ID == ID{} || m.Hash == [32]byte{}:
		return errors.New("no token")
	case m.Pattern == "" || len(m.Pattern) > 255:
		return errors.New("pattern of a wrong length")
	case m.Uses == 0 || m.TTLMillis == 0:
		return errors.New("a token without uses or time")
	}
	return nil
}

// TTL is how long the token is good for.
func (m *AddToken) TTL() time.Duration { return millis(m.TTLMillis) }

// RemoveToken takes a token of the client's tenant back. Executors that it has enrolled stay.
type RemoveToken struct {
	ID ID `cbor:"2,keyasint"`
}

// Type is TypeRemoveToken.
func (*RemoveToken) Type() Type { return TypeRemoveToken }

func (m *RemoveToken) check() error {
	if m.ID == (ID{}) {
		return errors.New("no token")
	}
	return nil
}

// ListTokens asks for the tokens of the client's tenant: a TokenItem each.
type ListTokens struct{}

// Type is TypeListTokens.
func (*ListTokens) Type() Type   { return TypeListTokens }
func (*ListTokens) check() error { return nil }

// TokenItem is one token of the tenant, spent ones included until the relay forgets them.
type TokenItem struct {
	ID      ID      `cbor:"2,keyasint"`
	Pattern string  `cbor:"3,keyasint"`
	Uses    uint32  `cbor:"4,keyasint"`
	Used    uint32  `cbor:"5,keyasint"`
	Expires int64   `cbor:"6,keyasint"`           // Unix milliseconds
	By      Bytes32 `cbor:"7,keyasint"`           // client key; zeros: the relay's operator
	Expired bool    `cbor:"8,keyasint,omitempty"` // on the relay's clock
}

// Type is TypeTokenItem.
func (*TokenItem) Type() Type { return TypeTokenItem }

func (m *TokenItem) check() error {
	switch {
	case m.ID == ID{}:
		return errors.New("no token")
	case len(m.Pattern) > 255:
		return errors.New("pattern too long")
	}
	return nil
}

// Follow is an executor's request to admit another key under its name and in its tenant: the key
// that is going to replace its own.
type Follow struct {
	Executor Bytes32 `cbor:"2,keyasint"` // the next key
}

// Type is TypeFollow.
func (*Follow) Type() Type { return TypeFollow }

func (m *Follow) check() error {
	if m.Executor == [32]byte{} {
		return errors.New("no executor key")
	}
	return nil
}

// Retire is an executor's request to admit the key that its own follows no longer.
type Retire struct {
	Executor Bytes32 `cbor:"2,keyasint"` // the earlier key
}

// Type is TypeRetire.
func (*Retire) Type() Type { return TypeRetire }

func (m *Retire) check() error {
	if m.Executor == [32]byte{} {
		return errors.New("no executor key")
	}
	return nil
}
