// An OpenID provider for one test: `node provider.js PORT REDIRECT SECRET`. It asks who one is, or is told by `account=` in the
// address, and believes it. It signs with a key of its own that is new at every start, and says when it listens.
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import { Provider } from 'oidc-provider';

const [port, redirect, secret] = process.argv.slice(2);
// Another site than the console, as browsers see it.
const issuer = `http://localhost:${port}`;

const GROUPS = { ada: ['staff', 'weir-owners'], bob: ['weir-viewers'], eve: ['staff'] };

const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const key = { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'RS256' };

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'weir',
      client_secret: secret,
      redirect_uris: [redirect],
      post_logout_redirect_uris: [redirect.replace('/openid/return', '/open')],
    },
  ],
  claims: { openid: ['sub'], profile: ['name'], groups: ['groups'] },
  scopes: ['openid', 'profile', 'groups'],
  cookies: { keys: [randomUUID()] },
  features: { devInteractions: { enabled: false } },
  findAccount: (_ctx, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: `Name of ${id}`, groups: GROUPS[id] }),
  }),
  interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
  jwks: { keys: [key] },
  pkce: { required: () => true },
});

// Who one is, one says: signed in and agreed to all, or refused.
async function interact(request, response) {
  const account = new URL(request.url, issuer).searchParams.get('account');
  if (account === null) {
    response.setHeader('content-type', 'text/html; charset=utf-8');
    const links = Object.keys(GROUPS).map((name) => `<a href="?account=${name}">${name}</a>`);
    return response.end(`<!doctype html><title>Who are you?</title>${links.join(' ')}`);
  }
  const { params } = await provider.interactionDetails(request, response);
  if (!GROUPS[account]) {
    return provider.interactionFinished(request, response, { error: 'access_denied' });
  }
  const grant = new provider.Grant({ accountId: account, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(request, response, { login: { accountId: account }, consent });
}

const answer = provider.callback();
createServer((request, response) => {
  if (!request.url.startsWith('/interaction/')) return answer(request, response);
  return interact(request, response).catch((error) => {
    response.writeHead(500);
    response.end(String(error));
  });
}).listen(Number(port), '127.0.0.1', () => console.log(`listens: ${issuer}`));
