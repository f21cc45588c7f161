// Package arch holds the tests that keep the architecture: who may import whom,
// and that every package says what it is for (docs/architecture.md).
package arch
