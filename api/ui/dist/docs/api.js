// The page on which the API is read and tried: Swagger UI over the document that this server answers to.
const root = new URL('..', document.currentScript.src);
const system = matchMedia('(prefers-color-scheme: light)');

function theme() { // as the console has it
  document.documentElement.classList.toggle('dark-mode', (localStorage.getItem('theme') ?? (system.matches ? 'light' : 'dark')) === 'dark');
}
system.addEventListener('change', theme);
addEventListener('storage', theme);
theme();

SwaggerUIBundle({
  url: new URL('api/v1/openapi.yaml', root).href,
  dom_id: '#api',
  deepLinking: true,
  docExpansion: 'none', // the tags fit a screen
  filter: true,
  displayOperationId: true, // the names of the clients' methods and of the commands
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null, // which would tell another site the address of this one
});
