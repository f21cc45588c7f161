package tunnel

import "context"

// Review asks at once who may be connected.
func (s *Server) Review(ctx context.Context) { s.review(ctx) }
