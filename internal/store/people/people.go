// Package people keeps who there is: users, and the teams that they are of. A change and its
// row of the audit are one transaction; what the database refuses is told by the name of the
// field.
package people

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// What rows of the audit are about.
const (
	KindUser = "user"
	KindTeam = "team"
)

// Store reads and writes users and teams, in the tables of migration 0052.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

const (
	userColumns = `id, username, email, role, status, revision, created_ns, updated_ns`
	teamColumns = `id, name, description, revision, created_ns, updated_ns`
)

func scanUser(rows *sql.Rows) (u schemas.User, err error) {
	var created, updated int64
	err = rows.Scan(&u.ID, &u.Username, &u.Email, &u.Role, &u.Status, &u.Revision, &created, &updated)
	u.CreatedAt, u.UpdatedAt = time.Unix(0, created).UTC(), time.Unix(0, updated).UTC()
	return u, err
}

func scanTeam(rows *sql.Rows) (t schemas.Team, err error) {
	var created, updated int64
	err = rows.Scan(&t.ID, &t.Name, &t.Description, &t.Revision, &created, &updated)
	t.CreatedAt, t.UpdatedAt = time.Unix(0, created).UTC(), time.Unix(0, updated).UTC()
	return t, err
}

// names returns, by id, the names at the other end of the memberships that a query selects as
// pairs of id and name.
func names(ctx context.Context, q sqldb.Queryer, query string, args ...any) (map[string][]string, error) {
	pairs, err := sqldb.Rows(ctx, q, func(rows *sql.Rows) (p [2]string, err error) { return p, rows.Scan(&p[0], &p[1]) }, query, args...)
	out := make(map[string][]string)
	for _, p := range pairs {
		out[p[0]] = append(out[p[0]], p[1])
	}
	for _, list := range out {
		slices.SortFunc(list, byName)
	}
	return out, err
}

// byName sorts names as they are unique. Engines sort letters beyond ASCII each in their own way.
func byName(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }

// users returns the users of a condition, with the names of their teams.
func users(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.User, error) {
	found, err := sqldb.Rows(ctx, q, scanUser, `SELECT `+userColumns+` FROM users WHERE `+where, args...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	teams, err := names(ctx, q, `SELECT m.user_id, t.name FROM team_members m JOIN teams t ON t.id=m.team_id WHERE m.user_id IN (`+
		`SELECT id FROM users WHERE `+where+`)`, args...)
	for i := range found {
		if found[i].Teams = teams[found[i].ID]; found[i].Teams == nil {
			found[i].Teams = []string{}
		}
	}
	return found, err
}

func teams(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Team, error) {
	found, err := sqldb.Rows(ctx, q, scanTeam, `SELECT `+teamColumns+` FROM teams WHERE `+where, args...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	of, err := names(ctx, q, `SELECT m.team_id, u.username FROM team_members m JOIN users u ON u.id=m.user_id WHERE m.team_id IN (`+
		`SELECT id FROM teams WHERE `+where+`)`, args...)
	for i := range found {
		if found[i].Members = of[found[i].ID]; found[i].Members == nil {
			found[i].Members = []string{}
		}
	}
	return found, err
}

// asked is the condition for what somebody names, by id or by a unique name. An address is no
// name: it may be another's name.
const (
	askedUser = `id=$1 OR lower(username)=lower($1)`
	askedTeam = `id=$1 OR lower(name)=lower($1)`
)

// User returns the user with an id or a username.
func (s *Store) User(ctx context.Context, ref string) (schemas.User, error) {
	found, err := users(ctx, s.db, askedUser, ref)
	return entity.Only(found, err, "user", ref)
}

// Team returns the team with an id or a name.
func (s *Store) Team(ctx context.Context, ref string) (schemas.Team, error) {
	found, err := teams(ctx, s.db, askedTeam, ref)
	return entity.Only(found, err, "team", ref)
}

// Filter chooses of a list; what is empty asks nothing.
type Filter struct {
	Role, Status string
	// Near is the id of a user: only they themselves and those of their teams are listed, and
	// of teams only theirs.
	Near  string
	Text  string // of users: a part of their name or address, or their id
	Sort  string // "" is by name
	After string // of users a cursor, of teams the name that the page before ended with
	Limit int
}

var userOrder = sqldb.Order[schemas.User]{
	ID: sqldb.Key[schemas.User]{SQL: "id", Of: func(u *schemas.User) any { return u.ID }}, Usual: "username",
	By: map[string]sqldb.Key[schemas.User]{
		"username":   {SQL: "username", Of: func(u *schemas.User) any { return u.Username }, Fold: true, Alone: true},
		"email":      {SQL: "email", Of: func(u *schemas.User) any { return u.Email }, Fold: true, Alone: true},
		"created_at": {SQL: "created_ns", Of: func(u *schemas.User) any { return u.CreatedAt.UnixNano() }},
	},
}

// Users lists users.
func (s *Store) Users(ctx context.Context, f Filter) ([]schemas.User, string, error) {
	like := ""
	if f.Text != "" {
		like = "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(strings.ToLower(f.Text)) + "%"
	}
	tail, args, err := userOrder.Tail(f.Sort, f.After, f.Limit, f.Role, f.Status, f.Near, like, f.Text)
	if err != nil {
		return nil, "", fmt.Errorf("list users: %w", err)
	}
	found, err := users(ctx, s.db, `(CAST($1 AS TEXT)='' OR role=$1) AND (CAST($2 AS TEXT)='' OR status=$2)
AND (CAST($3 AS TEXT)='' OR id=$3 OR id IN (SELECT a.user_id FROM team_members a JOIN team_members b ON a.team_id=b.team_id WHERE b.user_id=$3))
AND (CAST($4 AS TEXT)='' OR lower(username) LIKE $4 ESCAPE '\' OR lower(email) LIKE $4 ESCAPE '\' OR id=$5)`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list users: %w", err)
	}
	found, next := userOrder.Page(found, f.Sort, f.Limit)
	return found, next, nil
}

var teamOrder = sqldb.Order[schemas.Team]{
	ID: sqldb.Key[schemas.Team]{SQL: "id", Of: func(t *schemas.Team) any { return t.ID }}, Usual: "name",
	By: map[string]sqldb.Key[schemas.Team]{
		"name":       {SQL: "name", Of: func(t *schemas.Team) any { return t.Name }, Fold: true, Alone: true},
		"created_at": {SQL: "created_ns", Of: func(t *schemas.Team) any { return t.CreatedAt.UnixNano() }},
	},
}

// Teams lists teams, by name where no order is asked for.
func (s *Store) Teams(ctx context.Context, f Filter) ([]schemas.Team, string, error) {
	tail, args, err := teamOrder.Tail(f.Sort, f.After, f.Limit, f.Near)
	if err != nil {
		return nil, "", fmt.Errorf("list teams: %w", err)
	}
	found, err := teams(ctx, s.db, `(CAST($1 AS TEXT)='' OR id IN (SELECT team_id FROM team_members WHERE user_id=$1))`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list teams: %w", err)
	}
	found, next := teamOrder.Page(found, f.Sort, f.Limit)
	return found, next, nil
}

func userField(u *schemas.User) func(string) string {
	return func(field string) string {
		return map[string]string{"username": u.Username, "email": u.Email, "role": u.Role, "status": u.Status}[field]
	}
}

// CreateUser makes a user for by. One that the same request made before is returned as it is.
func (s *Store) CreateUser(ctx context.Context, by string, u schemas.User) (schemas.User, error) {
	u.ID, u.Revision, u.Teams = sqldb.NewID(ctx), 1, []string{}
	u.CreatedAt = s.now().UTC()
	u.UpdatedAt = u.CreatedAt
	err := entity.Made(ctx, s.db, &u, func(q sqldb.Queryer) ([]schemas.User, error) { return users(ctx, q, `id=$1`, u.ID) }, func(tx *sql.Tx) error {
		return s.insert(ctx, tx, by, &u)
	})
	if err != nil {
		return u, fmt.Errorf("create user %s: %w", u.Username, err)
	}
	return u, nil
}

// insert adds a user, with its row of the audit.
func (s *Store) insert(ctx context.Context, tx *sql.Tx, by string, u *schemas.User) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO users (`+userColumns+`) VALUES ($1,$2,$3,$4,$5,$6,$7,$8)`,
		u.ID, u.Username, u.Email, u.Role, u.Status, u.Revision, u.CreatedAt.UnixNano(), u.UpdatedAt.UnixNano()); err != nil {
		return entity.Explain(err, "users", userField(u))
	}
	return entity.Audit(ctx, tx, s.now(), by, entity.Create, KindUser, u.Username, nil, *u)
}

// put writes what a user is now, with its row of the audit.
func (s *Store) put(ctx context.Context, tx *sql.Tx, by string, before schemas.User, u *schemas.User) error {
	u.Revision++
	u.UpdatedAt = entity.Later(s.now(), before.UpdatedAt)
	res, err := tx.ExecContext(ctx, `UPDATE users SET username=$1, email=$2, role=$3, status=$4, revision=$5, updated_ns=$6 WHERE id=$7 AND revision=$8`,
		u.Username, u.Email, u.Role, u.Status, u.Revision, u.UpdatedAt.UnixNano(), u.ID, before.Revision)
	if err := entity.One(res, err); err != nil {
		return entity.Explain(err, "users", userField(u))
	}
	return entity.Audit(ctx, tx, s.now(), by, entity.Update, KindUser, u.Username, before, *u)
}

// UpdateUser changes a user for by. A revision that is not 0 is the one that the change was
// made of: where it is another by now, the change is [entity.ErrChanged]. What stays as it was is no
// change.
func (s *Store) UpdateUser(ctx context.Context, by, ref string, revision int64, change func(*schemas.User)) (u schemas.User, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := users(ctx, tx, askedUser, ref)
		if u, err = entity.Only(found, err, "user", ref); err != nil {
			return err
		}
		if err := entity.Check(revision, u.Revision); err != nil {
			return err
		}
		before := u
		if change(&u); u.Username == before.Username && u.Email == before.Email && u.Role == before.Role && u.Status == before.Status {
			return nil
		}
		return s.put(ctx, tx, by, before, &u)
	})
	if err != nil {
		return u, fmt.Errorf("update user %s: %w", ref, err)
	}
	return u, nil
}

// CreateTeam makes a team for by, with members by id or username. One that the same request
// made before is returned as it is.
func (s *Store) CreateTeam(ctx context.Context, by string, t schemas.Team) (schemas.Team, error) {
	t.ID, t.Revision = sqldb.NewID(ctx), 1
	t.CreatedAt = s.now().UTC()
	t.UpdatedAt = t.CreatedAt
	err := entity.Made(ctx, s.db, &t, func(q sqldb.Queryer) ([]schemas.Team, error) { return teams(ctx, q, `id=$1`, t.ID) }, func(tx *sql.Tx) error {
		return s.found(ctx, tx, by, &t)
	})
	if err != nil {
		return t, fmt.Errorf("create team %s: %w", t.Name, err)
	}
	return t, nil
}

// found adds a team, with its row of the audit.
func (s *Store) found(ctx context.Context, tx *sql.Tx, by string, t *schemas.Team) error {
	ids, names, err := members(ctx, tx, t.Members)
	if err != nil {
		return err
	}
	t.Members = names
	if _, err := tx.ExecContext(ctx, `INSERT INTO teams (`+teamColumns+`) VALUES ($1,$2,$3,$4,$5,$6)`,
		t.ID, t.Name, t.Description, t.Revision, t.CreatedAt.UnixNano(), t.UpdatedAt.UnixNano()); err != nil {
		return entity.Explain(err, "teams", func(string) string { return t.Name })
	}
	if err := join(ctx, tx, t.ID, ids); err != nil {
		return err
	}
	return entity.Audit(ctx, tx, s.now(), by, entity.Create, KindTeam, t.Name, nil, *t)
}

// members finds users by id or username: their ids, and their names, sorted.
func members(ctx context.Context, tx *sql.Tx, refs []string) (ids, names []string, err error) {
	names = []string{}
	for i, ref := range refs {
		found, err := users(ctx, tx, askedUser, ref)
		if err != nil {
			return nil, nil, err
		}
		if len(found) == 0 {
			return nil, nil, &entity.FieldError{Field: fmt.Sprintf("members[%d]", i), Value: ref, Reason: "is no user"}
		}
		if !slices.Contains(ids, found[0].ID) {
			ids, names = append(ids, found[0].ID), append(names, found[0].Username)
		}
	}
	slices.SortFunc(names, byName)
	return ids, names, nil
}

func join(ctx context.Context, tx *sql.Tx, team string, ids []string) error {
	for _, id := range ids {
		if _, err := tx.ExecContext(ctx, `INSERT INTO team_members (team_id, user_id) VALUES ($1,$2)`, team, id); err != nil {
			return err
		}
	}
	return nil
}

// UpdateTeam changes a team for by, as [Store.UpdateUser] does a user.
func (s *Store) UpdateTeam(ctx context.Context, by, ref string, revision int64, change func(*schemas.Team)) (t schemas.Team, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := teams(ctx, tx, askedTeam, ref)
		if t, err = entity.Only(found, err, "team", ref); err != nil {
			return err
		}
		if err := entity.Check(revision, t.Revision); err != nil {
			return err
		}
		return s.amend(ctx, tx, by, &t, change)
	})
	if err != nil {
		return t, fmt.Errorf("update team %s: %w", ref, err)
	}
	return t, nil
}

// amend changes a team, with its row of the audit; what stays as it was is no change.
func (s *Store) amend(ctx context.Context, tx *sql.Tx, by string, t *schemas.Team, change func(*schemas.Team)) error {
	before := *t
	before.Members = slices.Clone(t.Members)
	change(t)
	ids, names, err := members(ctx, tx, t.Members)
	if err != nil {
		return err
	}
	t.Members = names
	if t.Name == before.Name && t.Description == before.Description && slices.Equal(t.Members, before.Members) {
		return nil
	}
	t.Revision++
	t.UpdatedAt = entity.Later(s.now(), before.UpdatedAt)
	res, err := tx.ExecContext(ctx, `UPDATE teams SET name=$1, description=$2, revision=$3, updated_ns=$4 WHERE id=$5 AND revision=$6`,
		t.Name, t.Description, t.Revision, t.UpdatedAt.UnixNano(), t.ID, before.Revision)
	if err := entity.One(res, err); err != nil {
		return entity.Explain(err, "teams", func(string) string { return t.Name })
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM team_members WHERE team_id=$1`, t.ID); err != nil {
		return err
	}
	if err := join(ctx, tx, t.ID, ids); err != nil {
		return err
	}
	return entity.Audit(ctx, tx, s.now(), by, entity.Update, KindTeam, t.Name, before, *t)
}

// DeleteTeam removes a team for by; its members stay.
func (s *Store) DeleteTeam(ctx context.Context, by, ref string, revision int64) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := teams(ctx, tx, askedTeam, ref)
		t, err := entity.Only(found, err, "team", ref)
		if err != nil {
			return err
		}
		if err := entity.Check(revision, t.Revision); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM teams WHERE id=$1`, t.ID); err != nil {
			return entity.Explain(err, "teams", func(string) string { return t.Name })
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Delete, KindTeam, t.Name, t, nil)
	})
	if err != nil {
		return fmt.Errorf("delete team %s: %w", ref, err)
	}
	return nil
}
