// Package learn finds out from what a site has seen how trouble spreads there: which
// kinds of events bring about which others, over which relation of the inventory, and
// after how long.
package learn
