package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
)

func newTenant(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenant add|ls|rm",
		Short: "Say who may use a relay",
		Long: `Say who may use a relay. Its users are in tenants: clients reach the executors of their own
tenant, and learn nothing of others. DIR/tenants is the operator's list, a text file; the
relay follows its changes, and closes the connections of a key that is removed within a second:

  tenant acme conns=200 execs=50 circuits=400
  client client_... alice
  exec   exec_...   builder

DIR/enrolled is the relay's own list of join tokens and of executors that came with one.`,
		Example: `  postern tenant add --state /var/lib/postern-relay acme
  postern tenant add --state /var/lib/postern-relay acme client_... alice
  postern tenant ls --state /var/lib/postern-relay
  postern tenant rm --state /var/lib/postern-relay acme builder`,
		RunE: wantVerb,
	}
	cmd.AddCommand(newTenantAdd(), newTenantList(std), newTenantRemove(std))
	return cmd
}

// rosterFiles are the lists in a relay's state folder.
type rosterFiles struct{ state string }

func (r *rosterFiles) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.state, "state", "", "the relay's state folder")
}

func (r *rosterFiles) check() error {
	if r.state == "" {
		return errors.New("--state is missing: name the relay's state folder")
	}
	if info, err := os.Stat(r.state); err != nil || !info.IsDir() {
		return fmt.Errorf("--state %s is not a folder: start the relay once, which makes it", r.state)
	}
	return nil
}

func (r *rosterFiles) listed() string   { return filepath.Join(r.state, roster.ListedFile) }
func (r *rosterFiles) enrolled() string { return filepath.Join(r.state, roster.EnrolledFile) }

// read is what the relay makes of both.
func (r *rosterFiles) read() (merged, listed, enrolled *keys.Tenants, err error) {
	if listed, err = readTenants(r.listed()); err != nil {
		return nil, nil, nil, err
	}
	if enrolled, err = readTenants(r.enrolled()); err != nil {
		return nil, nil, nil, err
	}
	merged, _ = listed.Merge(enrolled)
	return merged, listed, enrolled, nil
}

func readTenants(path string) (*keys.Tenants, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return keys.ParseTenants(path, f)
}

func newTenantAdd() *cobra.Command {
	var files rosterFiles
	var limits keys.TenantLimits
	cmd := &cobra.Command{
		Use:   "add --state DIR TENANT [KEY NAME]",
		Short: "Add a tenant, or a member to one",
		Long: `Add a tenant, or a client or an executor to one, which is made if there is none. What is
there already is left as it is. Limits are for a new tenant; those of an old one are changed by editing
DIR/tenants.`,
		Example: `  postern tenant add --state /var/lib/postern-relay acme --circuits 400
  postern tenant add --state /var/lib/postern-relay acme client_... alice`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := files.check(); err != nil {
				return err
			}
			if len(args) != 1 && len(args) != 3 {
				return fmt.Errorf("want a tenant, or a tenant, a key and a name, got %d words", len(args))
			}
			for name, n := range map[string]int{"conns": limits.Connections, "execs": limits.Executors, "circuits": limits.Circuits} {
				if n < 0 {
					return fmt.Errorf("--%s %d: want a number above zero, or 0 for no limit", name, n)
				}
			}
			current, listed, enrolled, err := files.read()
			if err != nil {
				return failed(err)
			}
			var member keys.Member
			if len(args) == 3 {
				key, err := keys.ParsePublicKey(args[1])
				if err != nil {
					return err
				}
				if key.Kind() != keys.Client && key.Kind() != keys.Executor {
					return fmt.Errorf("%s is a relay's key: want one that begins with client_ or exec_", key)
				}
				member = keys.Member{Key: key, Name: args[2], Tenant: args[0]}
				if err := free(current, listed, enrolled, member); err != nil {
					return failed(err)
				}
			}
			if _, there := listed.Tenant(args[0]); !there || limits != (keys.TenantLimits{}) {
				if err := keys.AddTenant(files.listed(), keys.Tenant{Name: args[0], Limits: limits}); err != nil {
					return failed(err)
				}
			}
			if len(args) == 1 {
				return nil
			}
			return failed(keys.AddMember(files.listed(), args[0], member))
		},
	}
	files.add(cmd)
	f := cmd.Flags()
	f.IntVar(&limits.Connections, "conns", 0, "connections that the tenant may have; 0: no limit of its own")
	f.IntVar(&limits.Executors, "execs", 0, "executors that may be connected")
	f.IntVar(&limits.Circuits, "circuits", 0, "circuits that may be open")
	return cmd
}

// free refuses a key that is a member of another tenant in either list, since the operator's would move it silently, and a name
// that an executor with another key has enrolled under: neither is moved by force.
func free(current, listed, enrolled *keys.Tenants, m keys.Member) error {
	for _, list := range []*keys.Tenants{listed, enrolled} {
		if old, member := list.Lookup(m.Key); member && old.Tenant != m.Tenant {
			return fmt.Errorf("%s is a member of the tenant %s: remove it there first with: postern tenant rm --state DIR %s %s", m.Key, old.Tenant, old.Tenant, m.Key)
		}
	}
	for _, holder := range current.Named(m.Tenant, m.Key.Kind(), m.Name) {
		if holder.Key != m.Key && holder.Key != m.Follows {
			return fmt.Errorf("%s is already the name of %s: remove that one first with: postern tenant rm", m.Name, holder.Key)
		}
	}
	return nil
}

func newTenantRemove(std stdio) *cobra.Command {
	var files rosterFiles
	var force bool
	cmd := &cobra.Command{
		Use:   "rm --state DIR TENANT [KEY|NAME...]",
		Short: "Remove a tenant, or members of one",
		Long: `Remove a tenant, or clients and executors of one, by key or name, from both lists, an executor with
the key that is to replace its own. A running relay closes their connections within a second. A tenant that has
members or tokens needs -f. A machine whose token is still good can come back with it, and this says so.`,
		Example: `  postern tenant rm --state /var/lib/postern-relay acme builder
  postern tenant rm --state /var/lib/postern-relay -f acme`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := files.check(); err != nil {
				return err
			}
			if len(args) == 0 {
				return errors.New("want a tenant")
			}
			if len(args) == 1 {
				return failed(files.removeTenant(args[0], force))
			}
			for _, word := range args[1:] {
				if err := files.removeMember(&notes{w: std.err}, args[0], word); err != nil {
					return failed(err)
				}
			}
			return nil
		},
	}
	files.add(cmd)
	cmd.Flags().BoolVarP(&force, "force", "f", false, "remove a tenant with all its members and tokens")
	return cmd
}

func (r *rosterFiles) removeTenant(name string, force bool) error {
	_, listed, enrolled, err := r.read()
	if err != nil {
		return err
	}
	members := len(listed.Members(name)) + len(enrolled.Members(name))
	tokens := len(listed.Joins(name)) + len(enrolled.Joins(name))
	if members+tokens > 0 && !force {
		return fmt.Errorf("tenant %s has %d members and %d join tokens: -f removes them too", name, members, tokens)
	}
	// The operator's list first: without it nothing of the tenant is in force.
	return r.fromBoth(func(path string) error { return keys.RemoveTenant(path, name) },
		fmt.Errorf("there is no tenant %s", name))
}

func (r *rosterFiles) removeMember(n *notes, tenant, word string) error {
	merged, listed, enrolled, err := r.read()
	if err != nil {
		return err
	}
	members := append(listed.Members(tenant), enrolled.Members(tenant)...)
	var found []keys.PublicKey
	executors := true // of one name there is one executor, and the key that is going to replace its key
	for _, m := range members {
		if (m.Name == word || m.Key.String() == word) && !slices.Contains(found, m.Key) {
			found = append(found, m.Key)
			executors = executors && m.Key.Kind() == keys.Executor
		}
	}
	missing := fmt.Errorf("tenant %s has no member %s", tenant, word)
	switch {
	case len(found) == 0:
		return missing
	case len(found) > 1 && !executors:
		return fmt.Errorf("tenant %s has %d members with the name %s: give the key of one", tenant, len(found), word)
	}
	found = withFollowers(found, members)
	for _, key := range found {
		if err := r.fromBoth(func(path string) error { return keys.RemoveMember(path, key) }, missing); err != nil {
			return err
		}
	}
	var told []keys.TokenID
	for _, m := range members {
		if slices.Contains(found, m.Key) && !slices.Contains(told, m.Token) {
			told = append(told, m.Token)
			r.warnOfReturn(n, merged, m)
		}
	}
	return nil
}

// withFollowers adds the keys that are to replace one of these, and theirs: a machine is removed with all its keys.
func withFollowers(found []keys.PublicKey, members []keys.Member) []keys.PublicKey {
	for i := 0; i < len(found); i++ { // it grows
		for _, m := range members {
			if m.Follows == found[i] && !slices.Contains(found, m.Key) {
				found = append(found, m.Key)
			}
		}
	}
	return found
}

// warnOfReturn says so when a member that was removed came with a token that is still good.
func (r *rosterFiles) warnOfReturn(n *notes, merged *keys.Tenants, m keys.Member) {
	j, there := merged.Join(m.Token)
	if !there || j.Used >= j.Uses || !time.Now().Before(j.Expires) {
		return
	}
	n.warn("%s can come back with its token, good for %s until %s: its client runs postern token rm %s, or you remove the join line in %s",
		m.Name, machines(j.Uses-j.Used), j.Expires.Local().Format(time.DateTime), j.ID, r.enrolled())
}

// fromBoth removes something from both lists; missing is the error when it was in neither.
func (r *rosterFiles) fromBoth(remove func(path string) error, missing error) error {
	absent := 0
	for _, path := range []string{r.listed(), r.enrolled()} {
		switch err := remove(path); {
		case errors.Is(err, keys.ErrNotListed), errors.Is(err, fs.ErrNotExist):
			absent++
		case err != nil:
			return err
		}
	}
	if absent == 2 {
		return missing
	}
	return nil
}

func newTenantList(std stdio) *cobra.Command {
	var files rosterFiles
	var json bool
	cmd := &cobra.Command{
		Use:     "ls --state DIR [TENANT]",
		Short:   "List tenants, their members and join tokens",
		Example: `  postern tenant ls --state /var/lib/postern-relay acme`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := files.check(); err != nil {
				return err
			}
			if len(args) > 1 {
				return fmt.Errorf("want at most one tenant, got %d words", len(args))
			}
			merged, _, _, err := files.read()
			if err != nil {
				return failed(err)
			}
			tenants := merged.All()
			if len(args) == 1 {
				t, ok := merged.Tenant(args[0])
				if !ok {
					return failf(exitFailed, "there is no tenant %s", args[0])
				}
				tenants = []keys.Tenant{t}
			}
			if json {
				return failed(tenantLines(std.out, merged, tenants))
			}
			return failed(tenantTable(std.out, merged, tenants))
		},
	}
	files.add(cmd)
	cmd.Flags().BoolVar(&json, "json", false, "print one JSON object a line, one for each tenant")
	return cmd
}

// tenantJSON is one tenant with what belongs to it.
type tenantJSON struct {
	Tenant   string       `json:"tenant"`
	Conns    int          `json:"conns,omitempty"`
	Execs    int          `json:"execs,omitempty"`
	Circuits int          `json:"circuits,omitempty"`
	Members  []memberJSON `json:"members"`
	Tokens   []tokenJSON  `json:"tokens"`
}

type memberJSON struct {
	Kind  string `json:"kind"` // client, exec
	Key   string `json:"key"`
	Name  string `json:"name"`
	Token string `json:"token,omitempty"` // that it came with
}

func tenantLines(out io.Writer, merged *keys.Tenants, tenants []keys.Tenant) error {
	lines := newJSONLines(out)
	for _, t := range tenants {
		j := tenantJSON{
			Tenant: t.Name, Conns: t.Limits.Connections, Execs: t.Limits.Executors, Circuits: t.Limits.Circuits,
			Members: []memberJSON{}, Tokens: []tokenJSON{},
		}
		for _, m := range merged.Members(t.Name) {
			member := memberJSON{Kind: string(m.Key.Kind()), Key: m.Key.String(), Name: m.Name}
			if !m.Token.IsZero() {
				member.Token = m.Token.String()
			}
			j.Members = append(j.Members, member)
		}
		for _, join := range merged.Joins(t.Name) {
			j.Tokens = append(j.Tokens, tokenJSON{
				Token: join.ID.String(), Names: join.Pattern, Uses: join.Uses, Used: join.Used, ExpiresAt: join.Expires.UTC(),
			})
		}
		if err := lines.write(j); err != nil {
			return err
		}
	}
	return nil
}

func tenantTable(out io.Writer, merged *keys.Tenants, tenants []keys.Tenant) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "TENANT\tKIND\tNAME\tKEY")
	for _, t := range tenants {
		fmt.Fprintf(w, "%s\ttenant\t\t%s\n", t.Name, limitsText(t.Limits))
		for _, m := range merged.Members(t.Name) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.Name, m.Key.Kind(), m.Name, m.Key)
		}
		for _, j := range merged.Joins(t.Name) {
			state := fmt.Sprintf("%d of %d used, until %s", j.Used, j.Uses, j.Expires.Local().Format(time.DateTime))
			if !time.Now().Before(j.Expires) {
				state = fmt.Sprintf("%d of %d used, expired", j.Used, j.Uses)
			}
			fmt.Fprintf(w, "%s\ttoken\t%s\t%s %s\n", t.Name, j.Pattern, j.ID, state)
		}
	}
	return w.Flush()
}

func limitsText(l keys.TenantLimits) string {
	var words []string
	for _, limit := range []struct {
		name string
		n    int
	}{{"conns", l.Connections}, {"execs", l.Executors}, {"circuits", l.Circuits}} {
		if limit.n != 0 {
			words = append(words, fmt.Sprintf("%s=%d", limit.name, limit.n))
		}
	}
	return cmp.Or(strings.Join(words, " "), "no limits of its own")
}
