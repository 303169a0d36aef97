package egress

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxRules is how many items the text of Rules may have.
const MaxRules = 256

// webPorts are those of an item without a port.
var webPorts = [...]uint16{80, 443}

// Rules are the host names and ports that may be reached. The zero value allows nothing.
// They never change and are safe for concurrent use.
type Rules struct {
	rules []rule // sorted, each once
}

// rule is one name, canonical, and one port.
type rule struct {
	host string
	port uint16
}

func (a rule) compare(b rule) int {
	return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
}

// ParseRules reads items of the form HOST or HOST:PORT with commas between them and no
// spaces. HOST stands for exactly that name, not for names below it; case and a final dot
// do not matter. There are no wildcards and no addresses; international names are written
// in their xn-- form. Without a port the item stands for 80 and 443. The empty text allows
// nothing. An error names the first item that is wrong.
func ParseRules(text string) (Rules, error) {
	if text == "" {
		return Rules{}, nil
	}
	if n := strings.Count(text, ",") + 1; n > MaxRules {
		return Rules{}, fmt.Errorf("network rules: %d items are too many: at most %d", n, MaxRules)
	}
	var r Rules
	for item := range strings.SplitSeq(text, ",") {
		if err := r.add(item); err != nil {
			return Rules{}, fmt.Errorf("network rules: %w", err)
		}
	}
	r.normalize()
	return r, nil
}

func (r *Rules) add(item string) error {
	host, port, reason := parseAuthority(item, webPorts[0])
	switch {
	case item == "":
		return fmt.Errorf("an item is empty: write HOST or HOST:PORT with single commas between them")
	case strings.Contains(item, "*"):
		return fmt.Errorf("%.100q: there are no wildcards: write each host name", item)
	case reason == Malformed:
		return fmt.Errorf("%.100q: the port must be a number from 1 to 65535", item)
	case reason != 0:
		return fmt.Errorf("%.100q is not a host name: write HOST or HOST:PORT, with letters, digits, '-' and '.' only, and no addresses", item)
	}
	if strings.Contains(item, ":") {
		r.rules = append(r.rules, rule{host, port})
		return nil
	}
	for _, port := range webPorts {
		r.rules = append(r.rules, rule{host, port})
	}
	return nil
}

func (r *Rules) normalize() {
	slices.SortFunc(r.rules, rule.compare)
	r.rules = slices.Compact(r.rules)
}

// String gives the rules in the form that ParseRules reads, sorted, each item once, and
// without the ports where both 80 and 443 are allowed. Equal rules give equal text.
func (r Rules) String() string { return strings.Join(r.items(), ",") }

func (r Rules) items() []string {
	var items []string
	for i, rule := range r.rules {
		switch {
		case !r.web(rule.host) || !slices.Contains(webPorts[:], rule.port):
			items = append(items, rule.host+":"+strconv.Itoa(int(rule.port)))
		case i == 0 || rule.port == webPorts[0]: // the other one is said with it
			items = append(items, rule.host)
		}
	}
	return items
}

// web tells whether all ports of an item without a port are allowed.
func (r Rules) web(host string) bool {
	return r.has(rule{host, webPorts[0]}) && r.has(rule{host, webPorts[1]})
}

func (r Rules) has(want rule) bool {
	_, found := slices.BinarySearchFunc(r.rules, want, rule.compare)
	return found
}

// Empty tells whether nothing is allowed.
func (r Rules) Empty() bool { return len(r.rules) == 0 }

// Allows tells whether the host may be reached at the port. Case and a final dot of the
// name do not matter; whatever is not a host name is not allowed.
func (r Rules) Allows(host string, port uint16) bool {
	name, ok := canonicalHost(host)
	return ok && r.has(rule{name, port})
}

// verdict says why a canonical host and a port are not allowed, or zero.
func (r Rules) verdict(host string, port uint16) Reason {
	if r.has(rule{host, port}) {
		return 0
	}
	i, _ := slices.BinarySearchFunc(r.rules, rule{host: host}, rule.compare)
	if i < len(r.rules) && r.rules[i].host == host {
		return PortNotAllowed
	}
	return NoRule
}

// Within tells whether everything that r allows is allowed by bound too.
func (r Rules) Within(bound Rules) bool {
	return !slices.ContainsFunc(r.rules, func(rule rule) bool { return !bound.has(rule) })
}

// Meet returns what both allow. The result is within both.
func (r Rules) Meet(other Rules) Rules {
	var both Rules
	for _, rule := range r.rules {
		if other.has(rule) {
			both.rules = append(both.rules, rule)
		}
	}
	return both
}

// shown gives the rules for a person to read: the first few, and how many more there are.
func (r Rules) shown() string {
	const most = 12
	items := r.items()
	switch n := len(items) - most; {
	case len(items) == 0:
		return "none"
	case n > 0:
		return strings.Join(items[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(items, ", ")
}
