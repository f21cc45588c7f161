// Package notices tells people and their programs what happens to what they hold: an allocation
// that is ready, fails or ends soon, hardware of it that degrades. A notice is written in the
// transaction of what it tells, and then sent to the webhooks that want its type, as a CloudEvent
// (CloudEvents 1.0, structured JSON over HTTP) that is signed (Standard Webhooks 1.0). It is sent
// at least once, under the same id each time.
package notices

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"auspex/internal/store/hooks"
	"auspex/schemas"
)

// Notice is what is to be told.
type Notice struct {
	Type    string    // such as allocation.ready
	Subject string    // what it is of: an allocation's id, a server's name
	Time    time.Time // when it happened
	Data    any       // becomes JSON
	User    string    // id of whom it is for; "" is nobody in particular
	Team    string    // id of their team
}

// Put writes a notice in the transaction of what it tells. It is sent once that is committed.
func Put(ctx context.Context, tx *sql.Tx, n Notice) error {
	data, err := json.Marshal(n.Data)
	if err != nil {
		return fmt.Errorf("put notice %s: %w", n.Type, err)
	}
	return hooks.Put(ctx, tx, time.Now(), &schemas.Notice{
		Type: n.Type, Subject: n.Subject, Time: n.Time, Data: data, User: n.User, Team: n.Team,
	})
}
