package keys

import "testing"

func TestRateHasOneMeaningAndComesBack(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"1": 1, "999": 999, "1k": 1000, "1000": 1000, "50M": 50_000_000, "1500k": 1_500_000, "2G": 2_000_000_000, "1000G": maxRate} {
		got, err := ParseRate(text)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v, want %d", text, got, err, want)
		}
		if again, err := ParseRate(FormatRate(got)); err != nil || again != got {
			t.Errorf("FormatRate(%d) = %q, which is %d, %v", got, FormatRate(got), again, err)
		}
	}
	for _, text := range []string{"", "0", "0M", "-1", "+1", "1.5M", "01", "1m", "1K", "1MB", "1 M", "M", "kM", "1kM", "1001G", "99999999999999999999", "1e6", "\u0661M"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %d, want an error", text, got)
		}
	}
}

func TestTenantLineSaysItsRates(t *testing.T) {
	t.Parallel()
	const line = "tenant acme conns=5 handshakes/s=20 bytes/s=50M"
	tenant, found := tenantsOf(t, line).Tenant("acme")
	want := TenantLimits{Connections: 5, Handshakes: 20, Bytes: 50_000_000}
	if !found || tenant.Limits != want || tenant.line() != line {
		t.Errorf("%q is %+v, and again %q", line, tenant.Limits, tenant.line())
	}
}
