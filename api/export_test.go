package api

// WayTo is how a person gets to a console.
var WayTo = wayTo

// OfTenants reports whether somebody of a team may use a route at all.
func OfTenants(operation string) bool { return tenantRules[operation] != ruleSite }
