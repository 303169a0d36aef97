package roster

import (
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// Follow admits next under the name and in the tenant of an executor that is going to replace its
// key. Another key that was to replace it before is a member no longer.
func (r *Roster) Follow(executor keys.Member, next keys.PublicKey) *wire.Error {
	err := r.change(executor.Tenant, false, func(edit *keys.TenantsEdit, current *keys.Tenants) error {
		executor, err := still(current, executor)
		if err != nil {
			return err
		}
		if known, in := current.Lookup(next); in {
			if known.Follows != executor.Key {
				return wire.Errorf(wire.CodeConflict, "the next key belongs to another machine")
			}
			if known.Tenant == executor.Tenant && known.Name == executor.Name {
				return nil
			}
		}
		if _, both := current.Lookup(executor.Follows); both {
			return wire.Errorf(wire.CodeConflict, "this key replaces an earlier one that is still admitted: end that first")
		}
		for _, m := range followers(current, executor.Key) {
			if _, listed := r.listed.Current().Lookup(m.Key); listed {
				return wire.Errorf(wire.CodeConflict, "the relay's operator lists a key that is to replace this one, and has to remove it")
			}
			edit.RemoveMember(m.Key)
		}
		return enter(edit, current, keys.Member{
			Key: next, Name: executor.Name, Tenant: executor.Tenant, Follows: executor.Key, Since: now(),
		})
	})
	return r.answer(err)
}

// followers are the members that are to replace a key: one as a rule, and in another tenant or under another name if the
// operator has moved or renamed the executor since.
func followers(current *keys.Tenants, key keys.PublicKey) []keys.Member {
	var list []keys.Member
	for _, tenant := range current.All() {
		for _, m := range current.Members(tenant.Name) {
			if m.Follows == key {
				list = append(list, m)
			}
		}
	}
	return list
}

// Retire takes the key that executor follows out. One that the operator lists by hand can only be
// removed by hand: the log says so, and executor goes on following it.
func (r *Roster) Retire(executor keys.Member, old keys.PublicKey) *wire.Error {
	err := r.change(executor.Tenant, false, func(edit *keys.TenantsEdit, current *keys.Tenants) error {
		executor, err := still(current, executor)
		if err != nil {
			return err
		}
		if executor.Follows != old {
			return wire.Errorf(wire.CodeNotFound, "this key does not follow that one")
		}
		if _, listed := r.listed.Current().Lookup(old); listed {
			r.log.Warn("an executor has replaced its key: put the new one in place of the old one in the operator's list",
				"file", ListedFile, "tenant", executor.Tenant, "name", executor.Name, "old", old.String(), "new", executor.Key.String())
			return nil
		}
		edit.RemoveMember(old)
		executor.Follows = keys.PublicKey{}
		return enter(edit, current, executor)
	})
	return r.answer(err)
}
