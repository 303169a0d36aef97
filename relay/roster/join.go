package roster

import (
	"crypto/subtle"
	"errors"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// JoinResult says how a join went, for the log and the metric.
type JoinResult string

// The results of joining.
const (
	Joined      JoinResult = "ok"
	JoinAgain   JoinResult = "again"   // the key that has used the token before: nothing is counted
	JoinUnknown JoinResult = "unknown" // no such token, or another secret
	JoinSpent   JoinResult = "spent"
	JoinExpired JoinResult = "expired"
	JoinFull    JoinResult = "full"     // the tenant has as many machines as the relay keeps
	JoinName    JoinResult = "name"     // taken, or not one that the token allows
	JoinForeign JoinResult = "foreign"  // the key is a member of another tenant
	JoinBusy    JoinResult = "busy"     // too many of the tenant at once, or the list is being edited
	JoinFailed  JoinResult = "internal" // the disk
)

// JoinResults is all of them.
var JoinResults = []JoinResult{Joined, JoinAgain, JoinUnknown, JoinSpent, JoinExpired, JoinFull, JoinName, JoinForeign, JoinBusy, JoinFailed}

// joinError carries a refusal through the rewriting of the file.
type joinError struct {
	result JoinResult
	err    *wire.Error
}

func (e *joinError) Error() string { return e.err.Error() }

// Join admits the executor with this proven key under a name, if its proof is good for that. The use
// is counted and on disk when it returns. A key that has joined with the same token before gets
// what it got then.
func (r *Roster) Join(key keys.PublicKey, name string, proof *wire.JoinProof) (keys.Member, JoinResult, *wire.Error) {
	// Strangers cost no more than a look: the file is read for those only who would be admitted.
	wanted, again, err := r.decide(r.Current(), key, name, proof)
	if again {
		return wanted, JoinAgain, nil
	}
	if err == nil {
		err = r.change(wanted.Tenant, true, func(edit *keys.TenantsEdit, current *keys.Tenants) error {
			member, known, err := r.decide(current, key, name, proof)
			if err != nil {
				return err
			}
			if again = known; known {
				return nil
			}
			return r.enrol(edit, current, member)
		})
	}
	refusal, refused := errors.AsType[*joinError](err)
	busy, waits := errors.AsType[*wire.Error](err)
	member, in := r.Current().Lookup(key)
	switch {
	case refused:
		return keys.Member{}, refusal.result, refusal.err
	case waits:
		return keys.Member{}, JoinBusy, busy
	case err != nil:
		r.log.Error("a machine could not join", "file", EnrolledFile, "err", err)
		return keys.Member{}, JoinFailed, wire.Errorf(wire.CodeInternal, "the relay could not record the new member: its log says why")
	case !in: // the operator's list has changed this very moment
		return keys.Member{}, JoinBusy, wire.Errorf(wire.CodeBusy, "the relay's lists have changed: try again")
	case again:
		return member, JoinAgain, nil
	}
	return member, Joined, nil
}

// decide is the decision, by what is in force and what the operator has listed of it. Somebody without the secret learns nothing from
// it, and somebody with the secret of a spent token no more than that.
func (r *Roster) decide(current *keys.Tenants, key keys.PublicKey, name string, proof *wire.JoinProof) (m keys.Member, known bool, err error) {
	listed := r.listed.Current()
	refuse := func(result JoinResult, code wire.Code, format string, args ...any) (keys.Member, bool, error) {
		return keys.Member{}, false, &joinError{result, wire.Errorf(code, format, args...)}
	}
	join, found := current.Join(keys.TokenID(proof.Token))
	hash := keys.HashJoinSecret(keys.TokenID(proof.Token), proof.Secret)
	maker, there := current.Lookup(join.By)
	withdrawn := !join.By.IsZero() && (!there || maker.Tenant != join.Tenant) // with the client that made it
	if subtle.ConstantTimeCompare(hash[:], join.Hash[:]) != 1 || !found || withdrawn {
		return refuse(JoinUnknown, wire.CodeToken, "the relay does not know this join token: it may have been withdrawn, or made for another relay")
	}
	old, member := current.Lookup(key)
	if member && old.Tenant != join.Tenant {
		return refuse(JoinForeign, wire.CodeUnauthorized, "this machine's key is a member of another tenant of this relay: join with a new state folder")
	}
	if member && old.Token == join.ID && old.Name == name {
		return old, true, nil
	}
	switch {
	case !now().Before(join.Expires):
		return refuse(JoinExpired, wire.CodeToken, "this join token has expired on the relay's clock: make a new one with: postern token new")
	case r.used(join) >= join.Uses:
		return refuse(JoinSpent, wire.CodeToken, "this join token was used already: if that was not this machine, somebody else has it; make a new one with: postern token new")
	case !keys.MatchName(join.Pattern, name):
		return refuse(JoinName, wire.CodeNameTaken, "this join token is for names like %s: choose another with --name", join.Pattern)
	}
	for _, holder := range current.Named(join.Tenant, keys.Executor, name) {
		replacing := member && (holder.Key == old.Follows || holder.Follows == key) // two keys of one machine
		if holder.Key != key && !replacing {
			return refuse(JoinName, wire.CodeNameTaken, "the name %s belongs to another machine of this tenant: choose another with --name, or have that one removed", name)
		}
	}
	// The operator's line would stay in force, whatever is enrolled beside it.
	if own, byHand := listed.Lookup(key); byHand && own.Name != name {
		return refuse(JoinName, wire.CodeNameTaken, "the relay's operator lists this machine as %s: join with --name %s", own.Name, own.Name)
	}
	return keys.Member{
		Key: key, Name: name, Tenant: join.Tenant, Token: join.ID, MAC: proof.MAC, Follows: old.Follows, Since: now(),
	}, false, nil
}

// enrol counts the use and adds the member, or puts a member's new announcement in place of its old one.
func (r *Roster) enrol(edit *keys.TenantsEdit, current *keys.Tenants, m keys.Member) error {
	join, _ := current.Join(m.Token)
	join.Used = r.used(join) + 1
	if _, there := edit.Before().Lookup(m.Key); !there && len(edit.Before().Members(m.Tenant)) >= MaxEnrolled {
		return &joinError{JoinFull, &wire.Error{
			Code: wire.CodeBusy, RetryAfter: time.Hour,
			Text: "this tenant has as many machines as the relay enrols: its operator has to remove some",
		}}
	}
	if err := edit.SetJoin(join.Tenant, join); err != nil {
		return err
	}
	return enter(edit, current, m)
}

// enter puts a member into the relay's list. A line there of another key with its name that is not in force, because the
// operator's list says otherwise, goes: the list would contradict itself.
func enter(edit *keys.TenantsEdit, current *keys.Tenants, m keys.Member) error {
	for _, holder := range edit.Before().Named(m.Tenant, m.Key.Kind(), m.Name) {
		inForce, in := current.Lookup(holder.Key)
		if holder.Key != m.Key && !(in && inForce.Tenant == m.Tenant && inForce.Name == m.Name) {
			edit.RemoveMember(holder.Key)
		}
	}
	return edit.SetMember(m.Tenant, m)
}
