package keys

import (
	"errors"
	"strconv"
)

// maxRate bounds a number of bytes in a second: a terabyte is more than any relay carries.
const maxRate = 1_000_000_000_000

// rateUnits are the letters after a rate, largest first.
var rateUnits = []struct {
	letter byte
	factor int
}{{'G', 1_000_000_000}, {'M', 1_000_000}, {'k', 1_000}}

// ParseRate reads a number of bytes in a second, such as 50M: a whole number, with k, M or G for thousands, millions and
// thousands of millions. It is above zero.
func ParseRate(text string) (int, error) {
	wrong := errors.New("want a number of bytes in a second above zero, such as 500k or 50M")
	factor := 1
	digits := text
	for _, unit := range rateUnits {
		if n := len(text) - 1; n > 0 && text[n] == unit.letter {
			digits, factor = text[:n], unit.factor
		}
	}
	number, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || strconv.FormatUint(number, 10) != digits || number == 0 || number > uint64(maxRate/factor) {
		return 0, wrong
	}
	return int(number) * factor, nil
}

// FormatRate is the shortest text that ParseRate reads as n.
func FormatRate(n int) string {
	for _, unit := range rateUnits {
		if n != 0 && n%unit.factor == 0 {
			return strconv.Itoa(n/unit.factor) + string(unit.letter)
		}
	}
	return strconv.Itoa(n)
}

// rateInto stores what ParseRate reads.
func rateInto(dst *int) func(string) error {
	return func(value string) (err error) {
		*dst, err = ParseRate(value)
		return err
	}
}
