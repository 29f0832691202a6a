package dormouse

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Double is a float64 that may be NaN or infinite, which are texts in JSON.
type Double float64

// UnmarshalJSON reads a number, or one of the texts "NaN", "Infinity" and "-Infinity".
func (d *Double) UnmarshalJSON(data []byte) error {
	text := string(data)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%s is no number: %w", data, err)
	}
	*d = Double(value)
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (d Double) MarshalJSON() ([]byte, error) {
	switch value := float64(d); {
	case math.IsNaN(value):
		return []byte(`"NaN"`), nil
	case math.IsInf(value, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(value, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return json.Marshal(value)
	}
}
