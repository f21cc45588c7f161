package schemas

import "time"

// Roles of people and of tokens, from the least to the most.
const (
	RoleViewer   = "viewer"
	RoleOperator = "operator"
	RoleEngineer = "engineer" // an operator who may also bring machines into the inventory
	RoleAdmin    = "admin"
)

// Roles lists them, from the least to the most.
func Roles() []string { return []string{RoleViewer, RoleOperator, RoleEngineer, RoleAdmin} }

// States of a user.
const (
	UserActive   = "active"
	UserInactive = "inactive" // whose tokens and sessions do not work, and whose name stays
)

// User is a person, or a program of their own standing.
type User struct {
	ID        string    `json:"id"`       // UUID
	Username  string    `json:"username"` // unique in either case
	Email     string    `json:"email"`    // unique in either case
	Role      string    `json:"role"`
	Status    string    `json:"status"`
	Teams     []string  `json:"teams"` // names, sorted
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Revision  int64     `json:"-"` // 1 when it is made, one more with each change
}

// Grant is a role in one pool, beside what the role of its holder lets them everywhere.
type Grant struct {
	ID        string    `json:"id"`              // UUID
	User      string    `json:"user,omitempty"`  // username, where it is a user's
	Team      string    `json:"team,omitempty"`  // name, where it is of the members of a team
	Token     string    `json:"token,omitempty"` // name, where it is of a token that is nobody's
	Pool      string    `json:"pool"`            // name
	Role      string    `json:"role"`            // operator, engineer or admin
	CreatedAt time.Time `json:"created_at"`
}

// Team is who shares what is allocated to one of them: a tenant.
type Team struct {
	ID          string    `json:"id"`   // UUID
	Name        string    `json:"name"` // unique in either case
	Description string    `json:"description"`
	Members     []string  `json:"members"` // usernames, sorted
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	Revision    int64     `json:"-"`
}
