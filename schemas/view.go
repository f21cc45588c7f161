package schemas

// View is whose eyes a collector reads with. A board controller goes on telling of
// a part that its host has lost, so that one view never speaks for another.
type View string

// The views.
const (
	ViewNone    View = "none"    // it reads no part: schedulers, judges, people
	ViewNetwork View = "network" // a switch, of itself
	ViewBoard   View = "board"   // the board controller
	ViewHost    View = "host"    // what runs on the server: its kernel, its drivers
)

// Views lists them.
func Views() []View { return []View{ViewNone, ViewNetwork, ViewBoard, ViewHost} }
