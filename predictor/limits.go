package predictor

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"auspex/predictor/trend"
)

//go:embed limits.yaml
var builtin []byte

// Limit says beyond which value a metric means a failure.
type Limit struct {
	Metric string `yaml:"metric"`
	// Kind, if not empty, is the kind of the part ("fan", "port").
	Kind  string   `yaml:"kind"`
	Above *float64 `yaml:"above"`
	Below *float64 `yaml:"below"`
	// Fixed keeps this limit where the device gives one too; else the device's is taken.
	Fixed bool   `yaml:"fixed"`
	Unit  string `yaml:"unit"`
	// Peers is set where parts of one device share what drives the metric, as
	// fans share a duty: a part is then held against the median of the others.
	Peers bool `yaml:"peers"`
	// Share says that the number is a share of that median. Parts that have too few peers for one
	// are followed only where the device gives a limit.
	Share   bool   `yaml:"share"`
	Failure string `yaml:"failure"`
	// Drivers are metrics of the same part, read by the same collector, that may
	// explain this one, as power explains a temperature: it is then followed under
	// the usual load.
	Drivers []string `yaml:"drivers"`
	// Horizon is how far ahead a crossing counts.
	Horizon time.Duration `yaml:"horizon"`
	// MinHistory is how long a series is watched before anything is said of it.
	MinHistory time.Duration `yaml:"min_history"`

	target *trend.Target
}

// aim is the limit as followers take it.
func (l *Limit) aim() *trend.Target {
	v, below := l.value()
	return &trend.Target{Limit: v, Share: l.Share, Below: below, Horizon: l.Horizon, MinHistory: l.MinHistory, Drivers: len(l.Drivers)}
}

// value returns the limit, and whether it is crossed downwards.
func (l *Limit) value() (v float64, below bool) {
	if l.Below != nil {
		return *l.Below, true
	}
	return *l.Above, false
}

// ReadLimits reads a file of limits; an empty path gives the built-in ones.
func ReadLimits(path string) ([]Limit, error) {
	b := builtin
	if path != "" {
		var err error
		if b, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("read limits: %w", err)
		}
	}
	ls, err := parseLimits(b)
	if err != nil {
		return nil, fmt.Errorf("read limits %s: %w", path, err)
	}
	return ls, nil
}

func parseLimits(b []byte) ([]Limit, error) {
	var doc struct {
		Limits []Limit `yaml:"limits"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	var errs []error
	for i := range doc.Limits {
		l := &doc.Limits[i]
		switch {
		case l.Metric == "":
			errs = append(errs, fmt.Errorf("limit %d: metric is empty", i+1))
		case (l.Above == nil) == (l.Below == nil):
			errs = append(errs, fmt.Errorf("limit %d, %s: needs either above or below", i+1, l.Metric))
		case l.Horizon <= 0:
			errs = append(errs, fmt.Errorf("limit %d, %s: horizon must be positive", i+1, l.Metric))
		case l.MinHistory < 0:
			errs = append(errs, fmt.Errorf("limit %d, %s: min_history must not be negative", i+1, l.Metric))
		case len(l.Drivers) > trend.MaxDrivers:
			errs = append(errs, fmt.Errorf("limit %d, %s: has %d drivers; at most %d are allowed", i+1, l.Metric, len(l.Drivers), trend.MaxDrivers))
		case l.Share && !l.Peers:
			errs = append(errs, fmt.Errorf("limit %d, %s: share needs peers", i+1, l.Metric))
		case l.Peers && (l.Below != nil && *l.Below <= 0 || l.Above != nil && *l.Above <= 0):
			errs = append(errs, fmt.Errorf("limit %d, %s: with peers the limit must be positive", i+1, l.Metric))
		}
	}
	return doc.Limits, errors.Join(errs...)
}
