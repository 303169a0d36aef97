package roster

import (
	"errors"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// Bounds on join tokens.
const (
	// MaxTokens is how many tokens of one tenant the relay keeps, spent and expired ones included.
	MaxTokens = 200
	// MaxEnrolled is how many machines of one tenant the relay keeps in its own list: others are for the operator to list.
	MaxEnrolled = 5000
	// MaxUses is how many machines one token can enrol.
	MaxUses = MaxEnrolled
	// MaxTTL is the longest life of a token.
	MaxTTL = 30 * 24 * time.Hour
	// Afterlife is how long an expired token is remembered, so that who comes with it is told that it
	// has expired, or was used.
	Afterlife = 7 * 24 * time.Hour
)

// AddToken accepts a join token for the tenant of the client that asks. The same token again
// changes nothing.
func (r *Roster) AddToken(by keys.Member, m *wire.AddToken) *wire.Error {
	if err := keys.CheckPattern(m.Pattern); err != nil {
		return wire.Errorf(wire.CodeBadRequest, "pattern of names: %v", err)
	}
	if m.Uses > MaxUses {
		return wire.Errorf(wire.CodeBadRequest, "a token has at most %d uses", MaxUses)
	}
	if m.TTL() > MaxTTL {
		return wire.Errorf(wire.CodeBadRequest, "a token lives for at most %v", MaxTTL)
	}
	join := keys.Join{
		ID: keys.TokenID(m.ID), Tenant: by.Tenant, Hash: m.Hash, Pattern: m.Pattern,
		Uses: int(m.Uses), Expires: now().Add(max(m.TTL().Truncate(time.Second), time.Second)), By: by.Key,
	}
	err := r.change(by.Tenant, false, func(edit *keys.TenantsEdit, current *keys.Tenants) error {
		if _, err := still(current, by); err != nil {
			return err
		}
		if old, known := current.Join(join.ID); known {
			if old.Hash != join.Hash || old.Tenant != join.Tenant {
				return wire.Errorf(wire.CodeConflict, "there is another token with this id")
			}
			return nil
		}
		kept := 0
		for _, old := range current.Joins(by.Tenant) {
			if now().Sub(old.Expires) <= Afterlife {
				kept++
			} else {
				edit.RemoveJoin(old.ID)
			}
		}
		if kept >= MaxTokens {
			return &wire.Error{Code: wire.CodeBusy, RetryAfter: time.Hour, Text: "this tenant has as many join tokens as it may: remove some with: postern token rm"}
		}
		return edit.SetJoin(by.Tenant, join)
	})
	return r.answer(err)
}

// RemoveToken takes a token of the client's tenant back. Another tenant's is not found.
func (r *Roster) RemoveToken(by keys.Member, id keys.TokenID) *wire.Error {
	err := r.change(by.Tenant, false, func(edit *keys.TenantsEdit, current *keys.Tenants) error {
		if _, err := still(current, by); err != nil {
			return err
		}
		join, known := current.Join(id)
		if !known || join.Tenant != by.Tenant {
			return wire.Errorf(wire.CodeNotFound, "this tenant has no such join token")
		}
		if _, listed := r.listed.Current().Join(id); listed {
			return wire.Errorf(wire.CodeUnauthorized, "the relay's operator has made this join token, and has to remove it")
		}
		edit.RemoveJoin(id)
		return nil
	})
	return r.answer(err)
}

// still is a member as it is in force now. Who was removed, or moved, between asking and this moment asks in vain:
// nothing of it may be left in the lists.
func still(current *keys.Tenants, m keys.Member) (keys.Member, error) {
	now, in := current.Lookup(m.Key)
	if !in || now.Tenant != m.Tenant {
		return keys.Member{}, wire.Errorf(wire.CodeUnauthorized, "this relay does not admit this key any more: its operator has to list it")
	}
	return now, nil
}

// answer is what a member is told about a change.
func (r *Roster) answer(err error) *wire.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e
	}
	r.log.Error("a change could not be recorded", "file", EnrolledFile, "err", err)
	return wire.Errorf(wire.CodeInternal, "the relay could not record it: its log says why")
}
