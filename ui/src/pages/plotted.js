// The pages with plots, in a file of their own: the library of the plots is as large as all that an operator opens first.
export { DevicePage } from './device.js';
export { ExplorePage } from './explore.js';
